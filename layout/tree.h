/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The node table: each kind of file is one row here and its content functions. Rows are found by
 * their parent's row and their name; what a row leaves out, the defaults of tree.c do.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "layout/drafts.h"
#include "layout/layout.h"

enum row_id {
	ROW_NONE,
	ROW_ROOT,
	ROW_README,
	ROW_FEED,
	ROW_FEED_TAIL_LINK,
	ROW_FEED_TAIL,
	ROW_FEED_TAIL_AT,
	ROW_FEED_LOG,
	ROW_FEED_EVENT,
	ROW_COLLECTION,
	ROW_COLLECTION_TAIL_LINK,
	ROW_COLLECTION_TAIL,
	ROW_COLLECTION_TAIL_AT,
	ROW_COLLECTION_LOG,
	ROW_EVENT,
	ROW_DATA,
	ROW_DOCUMENTS,
	ROW_DOCUMENT,
	ROW_SCRATCH,
	ROW_IN,
	ROW_IN_EVENTS,
	ROW_IN_WAL2JSON,
	ROW_IN_WAL2JSON_AT,
	ROW_GROUPS,
	ROW_GROUP,
	ROW_GROUP_OFFSET,
	ROW_GROUP_LAG,
	ROW_GROUP_CONFIG,
	ROW_GROUP_STATS,
	ROW_GROUP_EVENTS_LINK,
	ROW_GROUP_EVENTS,
	ROW_GROUP_ACK,
	ROW_GROUP_NACK,
	ROW_GROUP_PENDING,
	ROW_PENDING_EVENT,
	ROW_DLQ,
	ROW_DEAD_LETTER,
	ROW_DLQ_TAIL_LINK,
	ROW_DLQ_TAIL,
	ROW_DLQ_LOG,
	ROW_DLQ_REPLAY,
	ROW_DLQ_REDELIVER,
	ROW_DLQ_DRAIN,
	ROW_OPS,
	ROW_OPS_EVENT,
	ROW_OPS_TAIL_LINK,
	ROW_OPS_TAIL,
	ROW_OPS_LOG,
	ROW_CTL,
	ROW_CTL_STATS,
	ROW_CTL_ERRORS,
	ROW_CTL_CONFIG,
	ROW_CTL_SOURCES,
	ROW_CTL_TRIM,
	ROWS,
};

/* What a node of the row is numbered by; with the row that says all of it, unless it is FREE. */
enum node_key {
	NODE_BY_ROW,
	NODE_BY_COLLECTION, /* or group */
	NODE_BY_SEQUENCE,
	NODE_FREE,
};

/*
 * What chmod and chown do to a node of the row, unless it has a `set` of its own. Where `like` is
 * the directory that a file is in, it has its owners, and lets read and write whom it lets.
 */
enum node_attributes {
	ATTRIBUTES_KEPT,   /* by its path; until then it has those of its `like`, if there is one */
	ATTRIBUTES_SHARED, /* they are those of its `like` */
	ATTRIBUTES_FIXED,  /* they cannot be changed through it */
};

struct file_operations;
struct json_t;

/* How a directory changes; what is NULL is refused. See layout_create() and those that follow it.
 */
struct directory_operations {
	int (*create)(struct layout *layout, const struct node *parent, const char *name,
		      const struct stat *as, bool exclusive, struct node *ret_node,
		      struct error *error);
	int (*mkdir)(struct layout *layout, const struct node *parent, const char *name,
		     struct node *ret_node, struct error *error);
	int (*unlink)(struct layout *layout, const struct node *parent, const char *name,
		      struct error *error);
	int (*rmdir)(struct layout *layout, const struct node *parent, const char *name,
		     struct error *error);
	int (*rename)(struct layout *layout, const struct node *parent, const char *name,
		      const struct node *new_parent, const char *new_name, bool replace,
		      struct error *error);
};

struct format;

/* One entry of a listing, by the row that lists it. */
struct listed {
	uint64_t place; /* where the listing goes on, below 2^54; 1 and up */
	struct node node;
	struct buffer name;
};

struct node_row {
	enum row_id parent;
	const char *name;  /* NULL: `find` knows the names */
	const char *shown; /* in README.md, where name is NULL */
	const char *about;
	const char *target; /* of a link */
	mode_t mode;
	unsigned flags;
	bool unlisted;
	enum node_key key;
	enum node_attributes attributes;
	enum row_id like;	     /* of the same directory, or that directory */
	const struct format *format; /* of a file that takes lines */
	const struct file_operations *file;
	const struct directory_operations *directory;
	/*
	 * Completes ret_node, whose row and collection are set, for a name below `parent`; -ENOENT
	 * if it is none of this row's. May be NULL for rows with a name.
	 */
	int (*find)(struct layout *layout, const struct node *parent, const char *name,
		    struct node *ret_node, struct error *error);
	/* The entry behind `place` (0: the first) of a row without a name. 1, 0 at the end. */
	int (*list)(struct directory *directory, uint64_t place, struct listed *ret_listed,
		    struct error *error);
	/* Size and times of what is no directory and no link. */
	int (*stat)(struct layout *layout, const struct node *node, const struct content *content,
		    struct stat *st, struct error *error);
	/* What layout_set() does; NULL: as layout_set() says. */
	int (*set)(struct layout *layout, const struct node *node, struct content *content,
		   const struct stat *attributes, unsigned to_set, struct error *error);
};

extern const struct node_row node_rows[ROWS];

static inline enum row_id row_of(const struct node *node)
{
	return (enum row_id)(node->row - node_rows);
}

/* Borrowed as long as the node is not changed. */
static inline struct bytes node_text(const struct node *node)
{
	return (struct bytes){node->text, node->text_size};
}

/*
 * The attributes that were set, as the store has them, in the order of paths. `changing` is held by
 * who changes one, also while the store writes; `lock` guards the table, and nothing is called
 * below it.
 */
struct attributes {
	pthread_mutex_t changing;
	pthread_rwlock_t lock;
	struct kept_attributes *kept;
	size_t count, capacity;
};

/* The open files that show what comes, as it comes (live.c). */
struct live {
	pthread_mutex_t lock; /* above the store's */
	struct live_file *first;
	_Atomic uint64_t last_number;
};

struct layout {
	struct store *store;
	struct layout_options options;
	struct attributes attributes;
	struct buffer readme;
	struct drafts drafts;
	struct live live;
	pthread_mutex_t configuring; /* held from the look at a group's settings to their change */
	_Atomic int64_t groups_changed; /* when a group came or went, in milliseconds */
	int64_t started_ms;
	int64_t created_ms; /* the store's birth */
};

/* What can be said of any node without looking at what it shows. */
struct stat stat_common(struct layout *layout, const struct node *node);
/* What follows from the size and the time. */
void stat_complete(struct stat *st);
/* An inode number for what has no number of its own: 62 bits of a hash, apart from all others. */
uint64_t ino_of_draft(uint64_t id);
/* Of what there is one of. */
uint64_t ino_of_row(enum row_id row);
uint64_t ino_of_text(enum row_id row, uint32_t collection, struct bytes text);
/* Takes the buffer's bytes as the node's text. */
void node_take_text(struct node *node, struct buffer *text);
struct timespec time_of_ms(int64_t ms);

/* attributes.c */
int attributes_load(struct layout *layout);
void attributes_free(struct layout *layout);
/* Puts a node's kept attributes in the place of the defaults in `st`. */
int attributes_apply(struct layout *layout, const struct node *node, struct stat *st);
/* Those of LAYOUT_SET_ATTRIBUTES in `to_set`, as layout_set(). */
int attributes_set(struct layout *layout, const struct node *node, const struct stat *attributes,
		   unsigned to_set, struct error *error);
/* What a directory that was just made shows, instead of what one of its name showed before. */
int attributes_begin(struct layout *layout, const struct node *node, const struct stat *as,
		     struct error *error);
/* Forgets those of all that lies below the directory. */
int attributes_forget_below(struct layout *layout, const struct node *directory,
			    struct error *error);
/* Takes away from `st` what only those may read who may search the directory. */
void attributes_limit(struct stat *st, const struct stat *directory);

/* ---- open files (file.c) ---- */

struct file {
	const struct file_operations *ops;
	struct layout *layout;
	struct node node; /* a copy, with a text of its own */
	bool writable;
	int flags; /* of open(2) */
	struct layout_caller caller;
};

struct file_operations {
	size_t size; /* of the struct that begins with a struct file */
	bool writable;
	int (*open)(struct file *file, struct content **shared, struct error *error);
	ssize_t (*read)(struct file *file, uint64_t offset, char *p, size_t size,
			struct error *error);
	bool (*ready)(struct file *file, uint64_t offset);
	/* Size and time of what it shows although its node is gone; NULL: it does not. */
	void (*stat)(const struct file *file, struct stat *st);
	ssize_t (*write)(struct file *file, const char *p, size_t size, uint64_t offset, int flags,
			 struct error *error);
	/* NULL: a size means nothing here. */
	int (*truncate)(struct file *file, uint64_t size, struct error *error);
	int (*flush)(struct file *file, struct error *error);
	int (*sync)(struct file *file, struct error *error);  /* NULL: store_sync() */
	int (*close)(struct file *file, struct error *error); /* frees all but the file itself */
};

/* Copies what lies at `offset` of some bytes; 0 at their end. */
ssize_t read_bytes(struct bytes from, uint64_t offset, char *p, size_t size);

/* Files that keep one line, read when they are opened: they stay readable when it is trimmed. */
struct line_file {
	struct file file;
	struct buffer line;
	int64_t time_ms;
};

ssize_t line_file_read(struct file *file, uint64_t offset, char *p, size_t size,
		       struct error *error);
int line_file_close(struct file *file, struct error *error);
void line_file_stat(const struct file *file, struct stat *st);

/* The kernel cuts larger reads into pieces, and a full one makes it ask for the rest, which would
 * wait at the end while the reader has lines in hand. So a piece of this many bytes never ends with
 * a line: returns how many of the n bytes to give. */
size_t end_inside_a_line(const char *p, size_t n, size_t size);

/* Files whose whole content is rendered: the node's text is it. */
extern const struct file_operations file_of_text;

/* The node of a name, without its attributes. -ENOENT, -ENOTDIR, -ENAMETOOLONG. */
int layout_lookup_node(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error);

/* feed.c */
extern const struct file_operations file_of_event, file_of_stream;
/* Removed before it had an event. */
bool feed_collection_is_gone(struct store *store, uint32_t collection);
int feed_find_collection(struct layout *layout, const struct node *parent, const char *name,
			 struct node *ret_node, struct error *error);
int feed_find_event(struct layout *layout, const struct node *parent, const char *name,
		    struct node *ret_node, struct error *error);
int feed_find_stream(struct layout *layout, const struct node *parent, const char *name,
		     struct node *ret_node, struct error *error);
int feed_find_stream_at(struct layout *layout, const struct node *parent, const char *name,
			struct node *ret_node, struct error *error);
int feed_list_collections(struct directory *directory, uint64_t place, struct listed *ret_listed,
			  struct error *error);
int feed_list_events(struct directory *directory, uint64_t place, struct listed *ret_listed,
		     struct error *error);
int feed_stat_event(struct layout *layout, const struct node *node, const struct content *content,
		    struct stat *st, struct error *error);
/* An event outside its collection's directory, which protects it all the same. */
int feed_stat_numbered(struct layout *layout, const struct node *node,
		       const struct content *content, struct stat *st, struct error *error);
int feed_stat_stream(struct layout *layout, const struct node *node, const struct content *content,
		     struct stat *st, struct error *error);

/* name_find.c: what a name stands for, cut ones included. -EINVAL: no encoding gives the name;
 * -ENOENT: it is cut (see names.h), and nothing has it. A name that is not cut is read without a
 * look into the store. On an error the buffer is as before. */
/* Appends the name of the collection, whether it is there or not. */
int collection_name_find(struct layout *layout, const char *name, struct buffer *ret_collection);
/* Appends the key of a file name in data/COLLECTION. */
int document_name_find(struct layout *layout, uint32_t collection, const char *name,
		       struct buffer *ret_key, struct error *error);

/* data.c */
extern const struct file_operations file_of_document, file_of_scratch;
extern const struct directory_operations directory_of_collections, directory_of_documents;
int data_find_collection(struct layout *layout, const struct node *parent, const char *name,
			 struct node *ret_node, struct error *error);
int data_list_collections(struct directory *directory, uint64_t place, struct listed *ret_listed,
			  struct error *error);
int data_find_scratch(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error);
int data_list_scratch(struct directory *directory, uint64_t place, struct listed *ret_listed,
		      struct error *error);
int data_stat_scratch(struct layout *layout, const struct node *node, const struct content *content,
		      struct stat *st, struct error *error);
int data_set_document(struct layout *layout, const struct node *node, struct content *content,
		      const struct stat *attributes, unsigned to_set, struct error *error);
int data_set_scratch(struct layout *layout, const struct node *node, struct content *content,
		     const struct stat *attributes, unsigned to_set, struct error *error);
/* Appends a scratch file's name. */
int data_scratch_name(struct layout *layout, const struct node *node, struct buffer *ret_name);
int data_find_document(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error);
int data_list_documents(struct directory *directory, uint64_t place, struct listed *ret_listed,
			struct error *error);
int data_stat_document(struct layout *layout, const struct node *node,
		       const struct content *content, struct stat *st, struct error *error);

/* in.c */
extern const struct file_operations file_of_lines;
int in_find_source(struct layout *layout, const struct node *parent, const char *name,
		   struct node *ret_node, struct error *error);
int in_stat(struct layout *layout, const struct node *node, const struct content *content,
	    struct stat *st, struct error *error);

/*
 * live.c: endless files that give what comes as it comes, so that what they have given is known to
 * the open file alone. It keeps the newest bytes and gives the same ones again for an offset it
 * gave them for; in front of all stands the node's text. The row's `find` gives each node its
 * number by live_number(), so that live_stat() finds its open file.
 */
struct live_file {
	struct file file;
	struct live_file *next;
	struct buffer kept;
	uint64_t kept_at; /* the file offset of kept's first byte */
	_Atomic uint64_t end;
	/* Appends up to `size` bytes of whole lines, but at least one; -EAGAIN: there is none. */
	int (*more)(struct live_file *file, size_t size, struct buffer *lines, struct error *error);
	bool (*has_more)(struct live_file *file);
};

uint64_t live_number(struct layout *layout);
/* Called by a file's `open`, when `more` and `has_more` are set. */
void live_open(struct live_file *file);
ssize_t live_read(struct file *file, uint64_t offset, char *p, size_t size, struct error *error);
bool live_ready(struct file *file, uint64_t offset);
/* Called by a file's `close`; frees what is kept. */
void live_close(struct live_file *file);
/* The size of what stands in front and of what an open file of the node has given so far, and one
 * byte more if there is more. */
uint64_t live_size(struct layout *layout, const struct node *node);

/* groups.c */
extern const struct directory_operations directory_of_groups, directory_of_pending;
extern const struct file_operations file_of_pending;
int groups_find(struct layout *layout, const struct node *parent, const char *name,
		struct node *ret_node, struct error *error);
int groups_list(struct directory *directory, uint64_t place, struct listed *ret_listed,
		struct error *error);
unsigned groups_count(struct layout *layout);
/* Appends the group's encoded name. */
int group_name_write(struct layout *layout, uint32_t group, struct buffer *ret_name);
int pending_find(struct layout *layout, const struct node *parent, const char *name,
		 struct node *ret_node, struct error *error);
int pending_list(struct directory *directory, uint64_t place, struct listed *ret_listed,
		 struct error *error);
int pending_stat(struct layout *layout, const struct node *node, const struct content *content,
		 struct stat *st, struct error *error);
int pending_set(struct layout *layout, const struct node *node, struct content *content,
		const struct stat *attributes, unsigned to_set, struct error *error);

/* group_texts.c */
int group_render_offset(struct layout *layout, const struct node *parent, const char *name,
			struct node *ret_node, struct error *error);
int group_render_lag(struct layout *layout, const struct node *parent, const char *name,
		     struct node *ret_node, struct error *error);
int group_render_config(struct layout *layout, const struct node *parent, const char *name,
			struct node *ret_node, struct error *error);
int group_render_stats(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error);
int group_apply_config(struct layout *layout, uint32_t group, struct json_t *object,
		       struct error *error);

/* group_files.c */
extern const struct file_operations file_of_offset, file_of_group_events, file_of_words;
int group_find_events(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error);
int group_stat_events(struct layout *layout, const struct node *node, const struct content *content,
		      struct stat *st, struct error *error);

/* records.c */
extern const struct file_operations file_of_record, file_of_records;
/* All of them, as the text of `.tail` or `log.ndjson`. */
int records_render(struct layout *layout, const struct node *parent, const char *name,
		   struct node *ret_node, struct error *error);
int records_stat_stream(struct layout *layout, const struct node *node,
			const struct content *content, struct stat *st, struct error *error);
int records_find(struct layout *layout, const struct node *parent, const char *name,
		 struct node *ret_node, struct error *error);
int records_list(struct directory *directory, uint64_t place, struct listed *ret_listed,
		 struct error *error);
int records_stat(struct layout *layout, const struct node *node, const struct content *content,
		 struct stat *st, struct error *error);
/* When the directory's newest record came, in milliseconds. */
int64_t records_last_ms(struct layout *layout, enum row_id row);

/* dead_letters.c */
extern const struct directory_operations directory_of_dead_letters;
/* Does what the row says with the dead letters whose numbers the text has. */
int dead_letters_apply(struct layout *layout, enum row_id row, struct bytes text,
		       struct error *error);

/* ctl.c */
extern const struct file_operations file_of_value, file_of_trim;
/* Takes the object, makes its text the node's. */
int node_take_json(struct node *node, struct json_t *object);
/* Which of the words (NULL behind the last) the value is; -1 for none. */
int json_word(const char *const *words, const struct json_t *value);
int ctl_render_stats(struct layout *layout, const struct node *parent, const char *name,
		     struct node *ret_node, struct error *error);
int ctl_render_errors(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error);
int ctl_render_config(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error);
int ctl_render_sources(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error);
int ctl_stat_text(struct layout *layout, const struct node *node, const struct content *content,
		  struct stat *st, struct error *error);

/* readme.c */
extern const struct file_operations file_of_readme;
int readme_stat(struct layout *layout, const struct node *node, const struct content *content,
		struct stat *st, struct error *error);

/* ---- open directories (directory.c) ---- */

struct directory {
	struct layout *layout;
	struct node node;
	struct buffer name; /* of the entry at hand, kept from one to the next */
	/* Frozen at the start of the listing. */
	uint32_t collections;
	uint64_t last_sequence;
	uint64_t last_draft;
	uint64_t last_record; /* of dlq/, ops/ or groups/; 0: not looked at yet */
	uint64_t *pending; /* the sequences that a group's pending/ had; NULL: not looked at yet */
	size_t pending_count;
	struct store_event_cursor *events;
	uint64_t events_at; /* the cursor's next event is the first one behind this sequence */
	struct store_document_cursor *documents;
	uint64_t documents_at; /* the cursor's next document is this one's successor, by count */
	struct buffer marks;   /* every MARK_STEP-th key: u32 length, bytes */
	size_t *mark_offsets;
	size_t mark_count;
};
