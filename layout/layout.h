/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * How the log looks as files: a tree of nodes, each with a name, attributes and content. Nothing
 * here knows FUSE, and nothing here waits for anything but the store. The caller
 * guards what it shares, but for the names and texts that only the layout has (drafts.h), and the
 * attributes that were set.
 * 0 or positive, or a negative errno with the reason in the struct error.
 */
#include <sys/stat.h>

#include "store/store.h"

struct layout;
struct node_row; /* a row of the node table */

/* How it stands with announcing, for ctl/stats.json. */
struct layout_announcing {
	char reason[128]; /* why it is off; empty: it is on */
	uint64_t announced;
	uint64_t skipped;
	uint64_t sequence; /* so far it has come */
};

/* What the layout needs from its host: things only the daemon knows. */
struct layout_host {
	void *context;
	/* Appends the text of ctl/errors. */
	int (*errors)(void *context, struct buffer *ret_text);
	/* Numbers for ctl/stats.json: open handles of endless files, and how many of them wait. */
	void (*readers)(void *context, uint64_t *ret_open, uint64_t *ret_waiting);
	void (*announcing)(void *context, struct layout_announcing *ret_announcing);
};

struct layout_options {
	uid_t uid;
	gid_t gid;
	mode_t umask;
	bool read_only;
	bool no_streams;     /* listings leave the links to endless files out */
	const char *version; /* of the program, for README.md and stats.json */
	const char *store_path;
	struct layout_host host;
};

/* The layout borrows the store and the strings until layout_close(). */
int layout_open(struct store *store, const struct layout_options *options,
		struct layout **ret_layout);
void layout_close(struct layout *layout);

/*
 * What the kernel knows as an inode: a value that is copied and compared. `text` is owned: a
 * document's key, or the rendering that this node shows.
 */
struct node {
	const struct node_row *row;
	uint32_t collection; /* or a group's number, in groups/ */
	uint64_t number;     /* by kind: a sequence, a position, a version */
	char *text;
	size_t text_size;
};

void node_free(struct node *node);
/* Takes the text away from `from`, which is left without one. */
void node_move(struct node *to, struct node *from);
/* A node that is fully said by 63 bits has a number of its own, never 0 or 1, the same for ever; 0
 * for others. */
uint64_t node_fixed_id(const struct node *node);
/* The inverse. -ESTALE: no such node. */
int node_from_fixed_id(struct layout *layout, uint64_t id, struct node *ret_node);
/* True if it is the fixed id of a directory other than the root. */
bool node_id_is_directory(uint64_t id);
/* For the others: two nodes that are equal are to be one to the kernel (unless NODE_FRESH). */
bool node_equal(const struct node *a, const struct node *b);
/* True if both show the same file, from different beginnings or at different times. Such nodes have
 * the same hash if they are NODE_SEVERAL. */
bool node_same_file(const struct node *a, const struct node *b);
uint64_t node_hash(const struct node *node);

enum node_flags {
	NODE_DIRECTORY = 1 << 0,
	NODE_LINK = 1 << 1,
	NODE_FRESH = 1 << 2,	 /* each lookup is a node of its own */
	NODE_ENDLESS = 1 << 3,	 /* a read at the end waits for more */
	NODE_IMMUTABLE = 1 << 4, /* content, size and name never change: cache at will */
	NODE_DIRECT = 1 << 5,	 /* no page cache */
	NODE_STATIC = 1 << 6,	 /* the name is always there: the kernel may remember it */
	NODE_CONTENT = 1 << 7,	 /* opening loads the whole content (struct content) */
	NODE_SEVERAL = 1 << 8, /* several nodes show one file that changes, see node_same_file() */
	NODE_TIMED = 1 << 9,   /* its use may give layout_settle() something to do */
};

unsigned node_flags(const struct node *node);

struct draft;

/* The bytes that open handles of one node share, so that size and bytes agree. Guarded by
 * the caller. */
struct content {
	struct buffer bytes;
	struct timespec time;
	struct draft *draft; /* what a writer has made of it so far */
};

void content_free(struct content *content); /* takes NULL */

/* Fills st; `content` is what open handles of the node share, or NULL. -ENOENT: it is gone. */
int layout_stat(struct layout *layout, const struct node *node, const struct content *content,
		struct stat *ret_stat, struct error *error);
int layout_root(struct layout *layout, struct node *ret_node);
/* -ENOENT, -ENOTDIR, -ENAMETOOLONG. Caller frees the node. */
int layout_lookup(struct layout *layout, const struct node *parent, const char *name,
		  struct node *ret_node, struct stat *ret_stat, struct error *error);
/* The fixed ids of the directories that an event of the collection changes; with 0, of those that a
 * new collection changes. Returns how many. */
size_t layout_changed_directories(uint32_t collection, uint64_t ret_ids[2]);
/* Appends the node's path in the mount, such as /in/events. The names of unlisted nodes that show
 * what is elsewhere too may be patterns. */
int layout_path(struct layout *layout, const struct node *node, struct buffer *ret_path);
/* The target of a NODE_LINK. Borrowed for ever. */
const char *layout_readlink(const struct node *node);
/*
 * What changes the tree. Each is all or nothing, and what data/ shows of it is in the log when the
 * call returns, but for scratch files. Where nothing can be made or removed: -EPERM, or -EROFS on a
 * read-only mount.
 */
/* Finds or makes a file, with the mode and owner of `as`. -EEXIST: it is there and `exclusive` is
 * set; -EINVAL: nothing has this name; -ENOSPC: too many. Caller frees the node. */
int layout_create(struct layout *layout, const struct node *parent, const char *name,
		  const struct stat *as, bool exclusive, struct node *ret_node,
		  struct stat *ret_stat, struct error *error);
/* Makes a directory with the mode, as far as the mount's umask lets it, and the owner of `as`.
 * -EEXIST, -EINVAL. Caller frees the node. */
int layout_mkdir(struct layout *layout, const struct node *parent, const char *name,
		 const struct stat *as, struct node *ret_node, struct stat *ret_stat,
		 struct error *error);
/* -ENOENT. */
int layout_unlink(struct layout *layout, const struct node *parent, const char *name,
		  struct error *error);
/* -ENOENT, -ENOTEMPTY. */
int layout_rmdir(struct layout *layout, const struct node *parent, const char *name,
		 struct error *error);
/* -EEXIST: the new name is there and `replace` is not set; -EXDEV: copy it instead; -EINVAL: the
 * text is not what the new name needs. */
int layout_rename(struct layout *layout, const struct node *parent, const char *name,
		  const struct node *new_parent, const char *new_name, bool replace,
		  struct error *error);
/* What mknod, symlink and link are told: the errno. Never 0. */
int layout_refuse_change(struct layout *layout, const struct node *parent, const char *name,
			 struct error *error);
enum {
	LAYOUT_SET_MODE = STORE_ATTRIBUTE_MODE,
	LAYOUT_SET_UID = STORE_ATTRIBUTE_UID,
	LAYOUT_SET_GID = STORE_ATTRIBUTE_GID,
	LAYOUT_SET_ATTRIBUTES = STORE_ATTRIBUTES_ALL,
	LAYOUT_SET_SIZE = 8,
	LAYOUT_SET_TIMES = 16,
};

/*
 * chmod, chown, truncate, utimes: what of `attributes` is named by the LAYOUT_SET_ bits in
 * `to_set`. Modes and owners are kept in the store; on history they can only be what they are
 * (-EPERM), on documents they are ignored. Sizes and times are taken where they are harmless: of a
 * file that takes lines. From any thread, at once; who may do it, the caller has checked.
 */
int layout_set(struct layout *layout, const struct node *node, struct content *content,
	       const struct stat *attributes, unsigned to_set, struct error *error);
/*
 * Does what was put off: a document whose name was given up is deleted some time later, leases of
 * groups end. Returns when there is more to do, in milliseconds of the monotonic clock, or -1; who
 * waits for more is then to be asked again. With `all`, everything that would be lost, now. From
 * any thread.
 */
int64_t layout_settle(struct layout *layout, bool all);

/* ---- open files; one thread at a time for each, but for layout_file_ready() ---- */

struct file;

/* Who opens a file: a process, and its user. */
struct layout_caller {
	pid_t pid;
	uid_t uid;
};

/*
 * `flags` are those of open(2). `shared` is the node's slot for a struct content (NODE_CONTENT
 * nodes): the handle uses what is there, or loads it and puts it there; the caller
 * holds the node's lock and empties the slot when the last handle of the node closes. -EPERM,
 * -EROFS: this is history, or the mount is read-only. -ENOENT: gone.
 */
int layout_file_open(struct layout *layout, const struct node *node, int flags,
		     struct layout_caller caller, struct content **shared, struct file **ret_file,
		     struct error *error);
/* Copies bytes at the file offset into p. 0 at the end of a file that ends; -EAGAIN at the end of
 * an endless one. */
ssize_t layout_file_read(struct file *file, uint64_t offset, char *p, size_t size,
			 struct error *error);
/* What fstat(2) tells of a file that can still be read although its node is gone. -ENOENT: it
 * cannot. From any thread. */
int layout_file_stat(const struct file *file, struct stat *ret_stat);
/* True if an endless file has bytes for `offset`. Cheap, and from any thread. */
bool layout_file_ready(struct file *file, uint64_t offset);
/* Takes up to `size` bytes; `flags` are the file's now (O_DSYNC). Less than size: the rest was not
 * accepted and the next write says why. */
ssize_t layout_file_write(struct file *file, const char *p, size_t size, uint64_t offset, int flags,
			  struct error *error);
int layout_file_truncate(struct file *file, uint64_t size, struct error *error);
/* Each close(2) of a descriptor. */
int layout_file_flush(struct file *file, struct error *error);
int layout_file_sync(struct file *file, struct error *error);
/* The last close. What could not be kept is in `error`, with its errno returned; the file is freed
 * in any case. */
int layout_file_close(struct file *file, struct error *error);

/* ---- directories ---- */

struct directory;

struct directory_entry {
	char name[256];
	uint64_t ino;
	mode_t type;	 /* S_IFDIR, S_IFREG, S_IFLNK */
	uint64_t cookie; /* the d_off behind this entry; never 0 */
};

/* The listing is frozen now. */
int layout_directory_open(struct layout *layout, const struct node *node,
			  struct directory **ret_directory, struct error *error);
/*
 * The entry behind `cookie` (0: the first, which freezes the listing anew). 1, or 0 at the end.
 * With ret_node not NULL also what a lookup of the name would give (node, stat), without "." and
 * "..": those have a NULL row; the caller frees the node. An entry that has gone meanwhile may be
 * given with a NULL row as well.
 */
int layout_directory_next(struct directory *directory, uint64_t cookie,
			  struct directory_entry *ret_entry, struct node *ret_node,
			  struct stat *ret_stat, struct error *error);
void layout_directory_close(struct directory *directory);

/* ---- what came by itself, for those who watch directories ---- */

struct layout_changes;

enum layout_action { LAYOUT_APPEARED, LAYOUT_MODIFIED, LAYOUT_VANISHED };

struct layout_change {
	enum layout_action action;
	uint64_t directory; /* its fixed id */
	bool is_directory;  /* the name is one */
	char name[256];
};

/*
 * What changes from now on. `wanted` says whether anyone may watch a directory, by its fixed id;
 * changes in others are passed over. One thread at a time, but for layout_changes_await(). When too
 * much has come only the newest event of each collection, with its document, is given.
 */
int layout_changes_open(struct layout *layout, bool (*wanted)(void *context, uint64_t directory),
			void *context, struct layout_changes **ret_changes);
void layout_changes_close(struct layout_changes *changes); /* takes NULL */
/* Looks at what there is now. Streams that grew are given once a look, and not at each
 * while much else is new. */
int layout_changes_look(struct layout_changes *changes);
/* 1 and the next change, or 0: for now there is no more to give. */
int layout_changes_next(struct layout_changes *changes, struct layout_change *ret_change);
/* What was given is known to those who watch. False: there is more, look again in a while. */
bool layout_changes_done(struct layout_changes *changes);
/* True if this node's name is still to be given: the kernel may not remember it. From any thread.
 */
bool layout_changes_await(const struct layout_changes *changes, const struct node *node);
/* The sequence up to which everything was given. From any thread. */
uint64_t layout_changes_sequence(const struct layout_changes *changes);
/* How many were left out because there were too many. */
uint64_t layout_changes_skipped(const struct layout_changes *changes);
/* A node and attributes for what has vanished from a directory, so that its name can be removed.
 * -ENOENT: no such name can have been there. Caller frees the node. */
int layout_vanished(struct layout *layout, const struct node *parent, const char *name,
		    struct node *ret_node, struct stat *ret_stat);

/* ---- for people ---- */

/* The tree as Markdown: what README.md in the mount's root shows. */
int layout_readme(struct layout *layout, struct buffer *ret_text);
