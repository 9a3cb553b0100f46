/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One consumer group against a simple model of it: random readers, acknowledgements, refusals,
 * closes, timeouts, moves, changes of the configuration, dead letters given back, and ends of the
 * process with and without store_close(). The model lies in memory that the children share, each of
 * which opens the store, plays some steps and ends.
 */
#include <sys/mman.h>

#include "store/consumer.h"
#include "tests/unit/store_test.h"

#define EVENTS	 400
#define KEYS	 7
#define READERS	 3
#define DEAD_MAX 4000
#define SESSIONS 25
#define ROUNDS	 2
#define U(v)	 ((unsigned long long)(v))
#define HALF(n)	 (test_random(2) ? (n) : 0)

enum state { NEW, LEASED, WAITING, DONE, RELEASED };

struct event {
	enum state state;
	int reader;
	uint64_t delivery;
	int64_t due;
	uint32_t attempts;
	uint32_t key;
	bool extra; /* given back behind the offset */
	bool dead;
};

static struct model {
	_Atomic int64_t now;
	uint64_t random;
	uint64_t last, offset, newest_delivery;
	uint32_t group;
	uint32_t max_attempts, batch, max_in_flight;
	uint64_t timeout;
	bool by_key, only_a;
	uint64_t pending[READERS];
	uint64_t dead_letters[DEAD_MAX]; /* number - 1: sequence; 0: removed */
	uint64_t dead_count;
	struct event events[EVENTS + 1];
	uint64_t steps, deliveries, refusals, losses;
} * m;

static struct store *store;
static struct store_group_reader *readers[READERS];

static struct store *open_model(void)
{
	struct store_options options = {.create = true,
					.owner = "/mnt/x",
					.boot_id = "boot-1",
					.clock_ms = &m->now};
	struct store *opened = NULL;

	if (store_open(test_directory, &options, &opened, &test_error) < 0) {
		printf("store_open: %s\n", test_error.text);
		abort();
	}
	return opened;
}

/* ---- the model ---- */

static bool matches(uint64_t s)
{
	return !m->only_a || m->events[s].key % 2 == 0;
}

static bool is_open(uint64_t s)
{
	const struct event *e = &m->events[s];

	if (e->state == LEASED || e->state == WAITING)
		return true;
	return e->state == NEW && s > m->offset && matches(s);
}

static void leave(struct event *e, enum state state)
{
	if (e->state == LEASED)
		m->pending[e->reader]--;
	e->state = state;
}

static void wait_until_due(struct event *e, int64_t due)
{
	leave(e, WAITING);
	e->due = due;
}

static void finish(struct event *e)
{
	leave(e, DONE);
	e->extra = false;
	e->dead = false;
}

static void settle_model(void)
{
	for (uint64_t s = 1; s <= m->last; s++) {
		struct event *e = &m->events[s];
		if (e->state == LEASED && e->due <= m->now)
			wait_until_due(e, m->now);
		if (e->state == WAITING && (e->dead || e->attempts >= m->max_attempts)) {
			if (m->dead_count == DEAD_MAX)
				abort();
			m->dead_letters[m->dead_count++] = s;
			finish(e);
		}
	}
}

static void advance_model(void)
{
	uint64_t offset = m->last;

	for (uint64_t s = m->offset + 1; s <= m->last; s++)
		if (is_open(s)) {
			offset = s - 1;
			break;
		}
	if (offset > m->offset)
		m->offset = offset;
	for (uint64_t s = 1; s <= m->offset; s++) /* a released one that the offset passed */
		if (m->events[s].state == RELEASED)
			finish(&m->events[s]);
}

static bool is_held(uint64_t s)
{
	for (uint64_t before = 1; m->by_key && before < s; before++)
		if (m->events[before].key == m->events[s].key && is_open(before))
			return true;
	return false;
}

static bool can_deliver(uint64_t s)
{
	const struct event *e = &m->events[s];

	if (!is_open(s) || (e->state == LEASED) || (e->state == WAITING && e->due > m->now))
		return false;
	return !is_held(s);
}

/* ---- the steps ---- */

static void step_put(void)
{
	for (uint64_t n = 1 + test_random(5); n && m->last < EVENTS; n--) {
		char key[16];
		uint32_t k = (uint32_t)test_random(KEYS);
		snprintf(key, sizeof(key), "%c:%u", k % 2 ? 'b' : 'a', k);
		int64_t s = put(store, key, "{}");
		CHECK(s == (int64_t)m->last + 1);
		m->last = (uint64_t)s;
		m->events[s] = (struct event){.key = k};
	}
}

static void step_time(void)
{
	m->now += (int64_t)test_random(m->timeout);
}

static void check_delivered(int r, const char *line, size_t count)
{
	static const char before[] = ",\"delivery\":{\"group\":\"g\",\"attempt\":";
	unsigned long long s = 0, id = 0;
	unsigned attempt = 0;
	const char *at = strstr(line, before);

	CHECK(sscanf(line, "{\"sequence\":%llu,", &s) == 1 && s >= 1 && s <= m->last);
	CHECK(at && sscanf(at + sizeof(before) - 1, "%u,\"id\":%llu}}\n", &attempt, &id) == 2);
	if (!at || !s || s > m->last)
		return;
	const char *whole = line_of(store, s);
	CHECK(memcmp(whole, line, strlen(whole) - 2) == 0);
	struct event *e = &m->events[s];
	if (!can_deliver(s))
		printf("event %llu: state %d due %lld now %lld offset %llu held %d\n", s, e->state,
		       (long long)e->due, (long long)m->now, U(m->offset), is_held(s));
	CHECK(can_deliver(s));
	CHECK(attempt == e->attempts + 1 && attempt <= m->max_attempts);
	CHECK(id > m->newest_delivery);
	CHECK(attempt < m->max_attempts || count == 1);
	m->newest_delivery = id;
	e->state = LEASED;
	e->reader = r;
	e->delivery = id;
	e->attempts = attempt;
	e->due = m->now + (int64_t)m->timeout;
	m->pending[r]++;
	m->deliveries++;
}

static void step_deliver(int r)
{
	static struct buffer lines;
	bool ready = store_group_ready(readers[r]);

	lines.n = 0;
	int n = store_group_deliver(readers[r], 1 << 20, &lines, &test_error);
	if (n == -EAGAIN) {
		if (m->pending[r] < m->max_in_flight)
			for (uint64_t s = 1; s <= m->last; s++) {
				if (can_deliver(s))
					printf("event %llu was not delivered, state %d\n", U(s),
					       m->events[s].state);
				CHECK(!can_deliver(s));
			}
		return;
	}
	CHECK(n > 0 && ready && n <= (int)m->batch);
	buffer_add(&lines, "", 1);
	const char *line = lines.p;
	for (int i = 0; i < n; i++) {
		check_delivered(r, line, (size_t)n);
		line = strchr(line, '\n') + 1;
	}
	CHECK(*line == 0);
	CHECK(m->pending[r] <= m->max_in_flight);
}

/* A random event that is leased or waits; 0: none. */
static uint64_t pick_pending(void)
{
	uint64_t s = 1 + test_random(m->last ? m->last : 1);

	for (uint64_t i = 0; i < m->last; i++, s = s % m->last + 1)
		if (m->events[s].state == LEASED || m->events[s].state == WAITING)
			return s;
	return 0;
}

static void step_acknowledge(void)
{
	uint64_t s = pick_pending();

	if (!s)
		return;
	struct event *e = &m->events[s];
	uint64_t delivery = test_random(4) ? HALF(e->delivery) : e->delivery + 1 - test_random(3);
	struct store_group_ack ack = {s, s, delivery};
	bool stale = delivery && (delivery != e->delivery || e->state != LEASED);
	int rc = store_group_acknowledge(store, m->group, &ack, 1, &test_error);
	CHECK(rc == (stale ? -ESTALE : 0));
	if (rc == 0)
		finish(e);
}

static void step_acknowledge_range(void)
{
	uint64_t to = pick_pending(), from = to > 6 ? to - test_random(6) : 1;
	bool undelivered = false;

	if (!to)
		return;
	struct store_group_ack acks[2] = {{from, to, 0}, {to, to, 0}};
	for (uint64_t s = from; s <= to; s++)
		undelivered |= is_open(s) && m->events[s].state == NEW;
	/* What was not delivered and not looked at is not of the window, so it does not count. */
	int rc = store_group_acknowledge(store, m->group, acks, 2, &test_error);
	CHECK(rc == 0 || (rc == -EINVAL && undelivered));
	for (uint64_t s = from; s <= to && rc == 0; s++)
		if (m->events[s].state == LEASED || m->events[s].state == WAITING)
			finish(&m->events[s]);
}

static void step_refuse(void)
{
	uint64_t s = pick_pending();

	if (!s)
		return;
	struct event *e = &m->events[s];
	struct store_group_nack nack = {
		.sequence = s,
		.delivery = test_random(4) ? HALF(e->delivery) : e->delivery + 1,
		.delay_ms = (int64_t)test_random(3000) - 1,
		.dead = !test_random(8),
		.reason = BYTES("no \"good\""),
	};
	bool stale = nack.delivery && (nack.delivery != e->delivery || e->state != LEASED);
	int rc = store_group_refuse(store, m->group, &nack, 1, &test_error);
	CHECK(rc == (stale ? -ESTALE : 0));
	if (rc < 0)
		return;
	e->dead = nack.dead;
	wait_until_due(e, m->now + (nack.delay_ms < 0 ? 700 : nack.delay_ms));
	settle_model();
	m->refusals++;
}

static void open_reader(int r)
{
	CHECK(store_group_reader_open(store, m->group, 100 + r, &readers[r], &test_error) == 0);
}

static void step_close(int r)
{
	uint64_t oldest = 0;

	store_group_reader_close(readers[r]);
	for (uint64_t s = 1; s <= m->last; s++) {
		struct event *e = &m->events[s];
		if (e->state == LEASED && e->reader == r &&
		    (!oldest || e->delivery < m->events[oldest].delivery))
			oldest = s;
	}
	for (uint64_t s = 1; s <= m->last; s++) {
		struct event *e = &m->events[s];
		if (e->state != LEASED || e->reader != r)
			continue;
		e->attempts -= s != oldest;
		wait_until_due(e, m->now);
	}
	CHECK(m->pending[r] == 0);
	settle_model();
	open_reader(r);
}

static void step_renew(void)
{
	uint64_t s = pick_pending();

	if (!s)
		return;
	bool leased = m->events[s].state == LEASED;
	CHECK(store_group_renew(store, m->group, s, &test_error) == (leased ? 0 : -ESTALE));
	if (leased)
		m->events[s].due = m->now + (int64_t)m->timeout;
}

static void step_move(void)
{
	uint64_t to = test_random(3) ? m->offset + test_random(4) : test_random(m->last + 2);
	enum store_group_move move =
		to > m->offset && test_random(2) ? STORE_MOVE_BY : STORE_MOVE_COMMIT;
	int64_t number = (int64_t)(move == STORE_MOVE_BY ? to - m->offset : to);

	int rc = store_group_move(store, m->group, move, number, BYTES("uid 0"), &test_error);
	CHECK(rc == (to > m->last ? -EINVAL : 0));
	if (rc < 0)
		return;
	for (uint64_t s = 1; s <= m->last; s++) {
		struct event *e = &m->events[s];
		if (to >= m->offset) {
			if (s <= to)
				finish(e);
		} else if (s > to) {
			finish(e);
			e->state = NEW;
			e->attempts = 0;
		}
	}
	m->offset = to;
}

static void apply_config(void)
{
	char only[] = "a";
	struct store_group_config c = {
		.collections = {only},
		.collection_count = m->only_a,
		.ack_timeout_ms = m->timeout,
		.max_attempts = m->max_attempts,
		.backoff_ms = {700},
		.backoff_count = 1,
		.max_in_flight = m->max_in_flight,
		.batch = m->batch,
		.order = m->by_key ? STORE_ORDER_KEY : STORE_ORDER_NONE,
	};

	CHECK(store_group_config_set(store, m->group, &c, &test_error) == 0);
}

static void step_config(void)
{
	m->max_attempts = 1 + (uint32_t)test_random(4);
	m->batch = 1 + (uint32_t)test_random(8);
	m->max_in_flight = 1 + (uint32_t)test_random(20);
	m->by_key = test_random(2);
	m->only_a = !test_random(3);
	apply_config();
	for (uint64_t s = 1; s <= m->last; s++) {
		struct event *e = &m->events[s];
		bool out = e->state == LEASED || e->state == WAITING;
		if (out && !matches(s) && e->extra)
			finish(e);
		else if (out && !matches(s))
			leave(e, RELEASED);
		if (e->state == RELEASED && matches(s)) {
			e->attempts = 0;
			wait_until_due(e, m->now);
		}
	}
}

static void step_redeliver(void)
{
	if (!m->dead_count)
		return;
	uint64_t i = test_random(m->dead_count), s = m->dead_letters[i];
	int rc = store_dead_letter_redeliver(store, i + 1, &test_error);
	CHECK(rc == (s ? 0 : -ENOENT));
	m->dead_letters[i] = 0;
	if (rc < 0 || m->events[s].state == LEASED)
		return;
	struct event *e = &m->events[s];
	e->attempts = 0;
	e->dead = false;
	e->extra |= s <= m->offset;
	e->delivery = m->newest_delivery = m->newest_delivery + 1;
	wait_until_due(e, m->now);
}

static void check_state(void)
{
	uint64_t offset = 0, number = 0, after = 0, count = 0;
	struct store_group_pending p;
	struct store_group_stats stats;

	advance_model();
	CHECK(store_group_offset(store, m->group, &offset) == 0);
	if (offset != m->offset)
		printf("the offset is %llu, not %llu\n", U(offset), U(m->offset));
	CHECK(offset == m->offset);
	while (store_group_pending_next(store, m->group, after, &p) > 0) {
		const struct event *e = &m->events[p.sequence];
		if (e->state != LEASED && e->state != WAITING)
			printf("event %llu is pending, not of state %d; offset %llu\n",
			       U(p.sequence), e->state, U(m->offset));
		CHECK(e->state == LEASED || e->state == WAITING);
		CHECK(e->attempts == p.attempts);
		CHECK((p.pid != 0) == (e->state == LEASED));
		after = p.sequence;
		count++;
	}
	bool open = false;
	for (uint64_t s = 1; s <= m->last; s++) {
		count -= m->events[s].state == LEASED || m->events[s].state == WAITING;
		open |= is_open(s);
	}
	CHECK(count == 0);
	CHECK(store_group_stats_get(store, m->group, &stats) == 0);
	CHECK((stats.lag > 0) == open);
	count = 0;
	while (store_record_next(store, STORE_DEAD_LETTER, number, &number, NULL) > 0) {
		CHECK(number <= m->dead_count && m->dead_letters[number - 1]);
		count++;
	}
	for (uint64_t i = 0; i < m->dead_count; i++)
		count -= m->dead_letters[i] != 0;
	CHECK(count == 0);
}

static void step(void)
{
	int r = (int)test_random(READERS);

	store_groups_settle(store);
	settle_model();
	advance_model();
	m->steps++;
	switch (test_random(24)) {
	case 0:
	case 1:
	case 2:
		step_put();
		break;
	case 3:
		step_time();
		break;
	case 4:
		step_close(r);
		break;
	case 5:
	case 6:
		step_refuse();
		break;
	case 7:
		step_renew();
		break;
	case 8:
		step_acknowledge_range();
		break;
	case 9:
		if (!test_random(4))
			step_move();
		break;
	case 10:
		if (!test_random(3))
			step_config();
		break;
	case 11:
		step_redeliver();
		break;
	case 12:
	case 13:
	case 14:
	case 15:
	case 16:
		step_acknowledge();
		break;
	default:
		step_deliver(r);
	}
	check_state();
}

/* Leases end with the process; their attempts count. */
static void lose_leases(void)
{
	for (uint64_t s = 1; s <= m->last; s++)
		if (m->events[s].state == LEASED) {
			wait_until_due(&m->events[s], m->now);
			m->losses++;
		}
}

static void play(void)
{
	store = open_model();
	for (int r = 0; r < READERS; r++)
		open_reader(r);
	for (uint64_t n = 5 + test_random(60); n && !test_checks_failed; n--)
		step();
	if (test_random(2)) {
		lose_leases();
		return;
	}
	for (int r = 0; r < READERS; r++)
		step_close(r);
	lose_leases();
	store_close(store);
}

/* Everything is handled in the end. */
static void drain(void)
{
	store = open_model();
	m->by_key = m->only_a = false;
	m->max_attempts = 3;
	m->batch = 10;
	m->max_in_flight = 1000;
	apply_config();
	for (int i = 0; i < 4000 && !test_checks_failed; i++) {
		static struct buffer lines;
		struct store_group_reader *reader = NULL;
		lines.n = 0;
		CHECK(store_group_reader_open(store, m->group, 1, &reader, &test_error) == 0);
		int n = store_group_deliver(reader, 1 << 20, &lines, &test_error);
		const char *line = lines.p;
		for (int k = 0; k < n; k++, line = strchr(line, '\n') + 1) {
			struct store_group_ack ack = {strtoull(line + 12, NULL, 10), 0, 0};
			ack.to = ack.from;
			CHECK(store_group_acknowledge(store, m->group, &ack, 1, &test_error) == 0);
		}
		store_group_reader_close(reader);
		m->now += 100;
	}
	struct store_group_stats stats;
	CHECK(store_group_stats_get(store, m->group, &stats) == 0);
	CHECK(stats.offset == m->last && stats.lag == 0 && stats.pending + stats.delayed == 0);
	store_close(store);
}

/* Runs `work` in a child, with the random numbers going on where it ended. */
static void in_child(void (*work)(void))
{
	int status = -1;
	pid_t pid;

	fflush(stdout);
	m->random = test_random_state;
	pid = fork();
	if (pid == 0) {
		work();
		m->random = test_random_state;
		fflush(stdout);
		_exit(test_checks_failed != 0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	test_random_state = m->random;
}

static void create(void)
{
	store = open_model();
	CHECK(store_group_create(store, BYTES("g"), &m->group, &test_error) == 0);
	apply_config();
	store_close(store);
}

static void group_is_as_its_model(void)
{
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		abort();
	test_seed("group_is_as_its_model");
	*m = (struct model){.now = 1000000,
			    .max_attempts = 3,
			    .batch = 3,
			    .max_in_flight = 10,
			    .timeout = 1000};
	in_child(create);
	for (int i = 0; i < SESSIONS && !test_checks_failed; i++) {
		in_child(play);
		CHECK(check_store(print_fault) == 0);
	}
	printf("%llu steps, %llu deliveries, %llu refusals, %llu dead letters, %llu leases lost\n",
	       U(m->steps), U(m->deliveries), U(m->refusals), U(m->dead_count), U(m->losses));
	in_child(drain);
	CHECK(check_store(print_fault) == 0);
	munmap(m, sizeof(*m));
}

int main(void)
{
	for (int i = 0; i < ROUNDS && !test_failed; i++)
		RUN_FRESH(group_is_as_its_model);
	return test_summary();
}
