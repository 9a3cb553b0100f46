/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of what came by itself: in what order, to whom, and what is left out. */
#include "layout/layout.h"
#include "tests/unit/store_test.h"

/* The tests' world: a store, its layout, and what changes in it. */
struct world {
	struct store *store;
	struct layout *layout;
	struct layout_changes *changes;
	uint64_t unwanted; /* a directory that nobody knows */
};

static bool is_wanted(void *context, uint64_t directory)
{
	return directory != ((struct world *)context)->unwanted;
}

static void open_world(struct world *w)
{
	struct layout_options options = {.umask = 022, .version = "test", .store_path = "store"};

	*w = (struct world){.store = open_store()};
	if (layout_open(w->store, &options, &w->layout) < 0 ||
	    layout_changes_open(w->layout, is_wanted, w, &w->changes) < 0)
		abort();
}

static void close_world(struct world *w)
{
	layout_changes_close(w->changes);
	layout_close(w->layout);
	store_close(w->store);
}

static int add_change(struct world *w, const struct layout_change *change, struct buffer *text)
{
	struct node directory;

	if (node_from_fixed_id(w->layout, change->directory, &directory) < 0)
		return -ESTALE;
	if (buffer_printf(text, "%s%c", text->n ? " " : "", "+*-"[change->action]) < 0 ||
	    layout_path(w->layout, &directory, text) < 0)
		return -ENOMEM;
	return buffer_printf(text, "/%s%s", change->name, change->is_directory ? "/" : "");
}

/* One look: `+` appeared, `*` modified, `-` vanished. In a static buffer. */
static const char *look(struct world *w, bool *ret_complete)
{
	static struct buffer text;
	struct layout_change change;

	text.n = 0;
	if (buffer_reserve(&text, 1) < 0 || layout_changes_look(w->changes) < 0)
		abort();
	text.p[0] = 0;
	while (layout_changes_next(w->changes, &change) > 0)
		CHECK(add_change(w, &change, &text) == 0);
	*ret_complete = layout_changes_done(w->changes);
	return text.p;
}

/* All looks until nothing is left, without the streams. */
static const char *told(struct world *w)
{
	static char all[4096];
	bool complete = false;

	for (all[0] = 0; !complete;) {
		char *copy = strdup(look(w, &complete)), *save = NULL;
		for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
			if (*p != '*' || strncmp(p, "*/data/", 7) == 0)
				snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
					 *all ? " " : "", p);
		free(copy);
	}
	return all;
}

static bool told_is(struct world *w, const char *expected)
{
	const char *text = told(w);

	if (strcmp(text, expected) == 0)
		return true;
	printf("told: %s\n", text);
	return false;
}

static int64_t delete (struct store *s, const char *key)
{
	struct store_event event = {.type = STORE_DELETE, .key = bytes_of(key)};

	return commit_event(s, &event);
}

static void what_was_there_is_not_told(void)
{
	struct store *s = open_store();
	struct world w;
	bool complete;

	put(s, "user:a", "1");
	store_close(s);
	open_world(&w);
	CHECK(strcmp(look(&w, &complete), "") == 0 && complete);
	close_world(&w);
}

static void a_collection_comes_a_look_before_its_events(void)
{
	struct world w;
	bool complete;

	open_world(&w);
	put(w.store, "user:a", "1");
	CHECK(strcmp(look(&w, &complete), "*/feed/.tail */feed/log.ndjson */feed/user/.tail "
					  "*/feed/user/log.ndjson +/feed/user/ +/data/user/") == 0);
	CHECK(!complete);
	CHECK(strcmp(look(&w, &complete), "+/feed/user/0000000000000001.json +/data/user/a.json") ==
	      0);
	CHECK(told_is(&w, ""));
	CHECK(store_collection_create(w.store, BYTES("order"), &test_error) == 0);
	CHECK(told_is(&w, "+/feed/order/")); /* in data/ its maker was seen */
	close_world(&w);
}

static void documents_appear_change_and_vanish(void)
{
	struct world w;

	open_world(&w);
	put(w.store, "user:a", "1");
	told(&w);
	put(w.store, "user:a", "2");
	CHECK(told_is(&w, "+/feed/user/0000000000000002.json */data/user/a.json"));
	delete (w.store, "user:a");
	CHECK(told_is(&w, "+/feed/user/0000000000000003.json -/data/user/a.json"));
	delete (w.store, "user:a"); /* there was none */
	CHECK(told_is(&w, "+/feed/user/0000000000000004.json"));
	put(w.store, "user:b", "1"); /* gone again before it is told */
	delete (w.store, "user:b");
	CHECK(told_is(&w, "+/feed/user/0000000000000005.json +/feed/user/0000000000000006.json "
			  "-/data/user/b.json"));
	struct store_event event = event_put("user:c", "1");
	event.through_file = true;
	commit_event(w.store, &event);
	CHECK(told_is(&w, "+/feed/user/0000000000000007.json"));
	close_world(&w);
}

static void nothing_is_told_where_nobody_watches(void)
{
	uint64_t ids[2];
	struct world w;

	open_world(&w);
	put(w.store, "user:a", "1");
	told(&w);
	layout_changed_directories(1, ids);
	w.unwanted = ids[0];
	put(w.store, "user:b", "1");
	CHECK(told_is(&w, "+/data/user/b.json"));
	w.unwanted = ids[1];
	put(w.store, "user:c", "1");
	CHECK(told_is(&w, "+/feed/user/0000000000000003.json"));
	close_world(&w);
}

static void of_a_backlog_each_collections_newest_is_told(void)
{
	struct world w;

	open_world(&w);
	put(w.store, "user:a", "1");
	put(w.store, "order:a", "1");
	told(&w);
	for (int i = 0; i < 600; i++)
		put(w.store, i < 300 ? "user:b" : "order:b", "1");
	CHECK(told_is(&w, "+/feed/user/0000000000000302.json */data/user/b.json "
			  "+/feed/order/0000000000000602.json */data/order/b.json"));
	CHECK(layout_changes_skipped(w.changes) == 598);
	CHECK(layout_changes_sequence(w.changes) == 602);
	put(w.store, "user:c", "1");
	CHECK(told_is(&w, "+/feed/user/0000000000000603.json +/data/user/c.json"));
	close_world(&w);
}

static void streams_are_told_even_behind_much_else(void)
{
	bool complete = false, modified = false;
	struct world w;

	open_world(&w);
	put(w.store, "user:a", "1");
	told(&w);
	for (int i = 0; i < 60; i++) /* more than one look takes */
		put(w.store, "user:b", "1");
	look(&w, &complete);
	CHECK(!complete);
	put(w.store, "user:c", "1");
	while (!complete)
		modified |= strstr(look(&w, &complete), "*/feed/.tail") != NULL;
	CHECK(modified);
	close_world(&w);
}

static void a_name_is_awaited_until_it_is_told(void)
{
	struct node feed = {0}, user = {0}, event = {0};
	struct world w;
	struct stat st;

	open_world(&w);
	put(w.store, "user:a", "1");
	struct node root;
	CHECK(layout_root(w.layout, &root) == 0);
	CHECK(layout_lookup(w.layout, &root, "feed", &feed, &st, &test_error) == 0);
	CHECK(layout_lookup(w.layout, &feed, "user", &user, &st, &test_error) == 0);
	CHECK(layout_lookup(w.layout, &user, "1.json", &event, &st, &test_error) == 0);
	CHECK(layout_changes_await(w.changes, &user) && layout_changes_await(w.changes, &event));
	CHECK(!layout_changes_await(w.changes, &feed));
	told(&w);
	CHECK(!layout_changes_await(w.changes, &user) && !layout_changes_await(w.changes, &event));
	close_world(&w);
}

static void what_was_trimmed_vanishes(void)
{
	struct world w;

	open_world(&w);
	put(w.store, "user:a", "1");
	put(w.store, "order:a", "1");
	put(w.store, "user:b", "1");
	told(&w);
	CHECK(store_floor_set(w.store, 3, "trim", &test_error) == 0);
	CHECK(told_is(&w, "+/ops/0000000000000002.json -/feed/user/0000000000000001.json "
			  "-/feed/order/0000000000000002.json"));
	CHECK(told_is(&w, ""));
	close_world(&w);
}

int main(void)
{
	RUN_FRESH(what_was_there_is_not_told);
	RUN_FRESH(a_collection_comes_a_look_before_its_events);
	RUN_FRESH(documents_appear_change_and_vanish);
	RUN_FRESH(nothing_is_told_where_nobody_watches);
	RUN_FRESH(of_a_backlog_each_collections_newest_is_told);
	RUN_FRESH(streams_are_told_even_behind_much_else);
	RUN_FRESH(a_name_is_awaited_until_it_is_told);
	RUN_FRESH(what_was_trimmed_vanishes);
	return test_summary();
}
