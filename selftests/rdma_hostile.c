// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_hostile.c - somebody in the network who has no business here, a peer that is not
 * there, and a member of a communicator who lies. The first gets nowhere and harms nobody; the
 * second is waited for as long as its machine lives; the third is cut off and loses that
 * communicator its link, while others on the same device go on. What it writes into memory that
 * it was granted, or was not, is rdma_writes.c's.
 *
 * npulink-test: modules=none timeout=240
 */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include "insider.h"
#include "users.h"

/* ---- without the secret ---------------------------------------------------------------- */

/* What is said when calling, and why that is refused. */
struct wrong_hello {
	const char *what;
	void (*make)(struct npulink_wire_hello *hello);
	uint8_t reason;
	int len;		/* -1: all of it */
	enum {
		SIGNED,
		NOT_SIGNED,		/* by who knows what was said, but not the secret */
		SIGNED_ELSEWHERE,	/* for another connection */
	} how;
};

#define HELLO(name, body) static void name(struct npulink_wire_hello *m) { body; }

HELLO(hello_right, (void)m)
HELLO(hello_garbage, memset(m, 0xa5, sizeof(*m)))
HELLO(hello_magic, m->magic ^= 1)
HELLO(hello_version, m->version++)
HELLO(hello_old, m->when = 1)
HELLO(hello_tag, m->tag[7] ^= 1)
HELLO(hello_rank, m->rank = 2)
HELLO(hello_own_rank, m->rank = 1)
HELLO(hello_flags, m->flags = NPULINK_WIRE_CHECKSUM)
HELLO(hello_knock, m->flags = NPULINK_WIRE_KNOCK)
HELLO(hello_lost, m->flags = NPULINK_WIRE_KNOCK | NPULINK_WIRE_LOST)
HELLO(hello_only_lost, m->flags = NPULINK_WIRE_LOST)

static const struct wrong_hello wrong_hellos[] = {
	/* The connection manager fills up with zeros. */
	{ "nothing", hello_right, NPULINK_WIRE_VERSIONS, 0, SIGNED },
	{ "half of it", hello_right, NPULINK_WIRE_NOBODY,
	  offsetof(struct npulink_wire_hello, tag), SIGNED },
	{ "garbage", hello_garbage, NPULINK_WIRE_VERSIONS, -1, SIGNED },
	{ "another magic", hello_magic, NPULINK_WIRE_VERSIONS, -1, SIGNED },
	{ "another version", hello_version, NPULINK_WIRE_VERSIONS, -1, SIGNED },
	{ "another tag", hello_tag, NPULINK_WIRE_NOBODY, -1, SIGNED },
	{ "another rank", hello_rank, NPULINK_WIRE_LATER, -1, SIGNED },
	{ "our own rank", hello_own_rank, NPULINK_WIRE_LATER, -1, SIGNED },
	{ "checksums that are not wanted", hello_flags, NPULINK_WIRE_LATER, -1, SIGNED },
	{ "that it only wants to know", hello_knock, NPULINK_WIRE_LATER, -1, SIGNED },
	{ "that it has lost a connection", hello_lost, NPULINK_WIRE_LATER, -1, SIGNED },
	{ "the same, and calls", hello_only_lost, NPULINK_WIRE_LATER, -1, SIGNED },
	{ "what it has said long ago", hello_old, NPULINK_WIRE_LATER, -1, SIGNED },
	{ "what others have said", hello_right, NPULINK_WIRE_NOBODY, -1, NOT_SIGNED },
	{ "the same, and only wants to know", hello_knock, NPULINK_WIRE_NOBODY, -1,
	  NOT_SIGNED },
	{ "what was said over another connection", hello_right, NPULINK_WIRE_NOBODY, -1,
	  SIGNED_ELSEWHERE },
};

/* Only who has proved itself is told in a way that it can believe. */
static bool refusal_right(struct hostile *h, const struct victim *v,
			  const struct wrong_hello *wrong)
{
	struct npulink_wire_refusal refusal, right = { .reason = wrong->reason };

	memcpy(&refusal, &h->welcome, sizeof(refusal));
	if (wrong->how == SIGNED && wrong->reason == NPULINK_WIRE_LATER)
		hostile_sign_refusal(h, v->secret, &right);
	if (!memcmp(&refusal, &right, sizeof(right)))
		return true;
	ksft_print_msg("refused with %u\n", refusal.reason);
	return false;
}

static bool refused(struct victim *v, const struct wrong_hello *wrong)
{
	struct npulink_wire_hello hello = hostile_hello(v->secret, 0, 1);
	size_t len = wrong->len < 0 ? sizeof(hello) : (size_t)wrong->len;
	struct sockaddr_in sin = listener();
	struct hostile h;
	bool ok;

	wrong->make(&hello);
	if (hostile_init(&h))
		return false;
	h.twist = wrong->how == SIGNED_ELSEWHERE;
	ok = hostile_call(&h, &sin, wrong->how == NOT_SIGNED ? NULL : v->secret, &hello,
			  len) == RDMA_CM_EVENT_REJECTED &&
	     h.answer_len >= sizeof(struct npulink_wire_refusal) && refusal_right(&h, v, wrong);
	hostile_end(&h);
	return ok;
}

/* What is said first is right; what is said next is wrong. */
static const char *const wrong_proofs[] = {
	"a wrong proof", "a short proof", "a message instead", "nothing at all",
};

/*
 * Calls as rank 0 until it is taken. Who was called says "later" for a moment after it has dropped
 * another caller, whose connection it takes down.
 */
static bool is_taken(struct hostile *h, const struct victim *v)
{
	struct sockaddr_in sin = listener();

	for (unsigned int i = 0; i < 100; i++) {
		struct npulink_wire_hello hello = hostile_hello(v->secret, 0, 1);

		if (hostile_init(h))
			return false;
		if (hostile_call(h, &sin, v->secret, &hello,
				 sizeof(hello)) == RDMA_CM_EVENT_ESTABLISHED)
			return true;
		hostile_end(h);
		raw_sleep_ms(100);
	}
	return false;
}

static bool dropped(struct victim *v, unsigned int kind)
{
	const size_t proof = sizeof(struct npulink_wire_auth);
	char data[sizeof(struct npulink_wire_msg)] = { kind == 2 ? NPULINK_WIRE_BYE : 0 };
	struct hostile h;
	bool ok;

	if (!is_taken(&h, v))
		return false;
	ok = true;
	if (kind != 3)
		ok = !hostile_send(&h, data, kind == 0 ? proof : kind == 1 ? proof - 1 :
				       sizeof(data));
	ok = ok && hostile_dropped(&h, 20000) && !h.nrecv;
	hostile_end(&h);
	return ok;
}

/* A machine that is alive, and asks for patience. Returns its process, its port, its secret. */
static pid_t neighbour(uint16_t *at, uint8_t **secret)
{
	bool knocks = false;
	struct hostile h;
	int fds[2];
	pid_t pid;

	*secret = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (*secret == MAP_FAILED || pipe(fds))
		return -1;
	pid = fork();
	if (!pid) {
		*at = 0;
		/* The first hash takes long, and those who call do not wait for long. */
		h.hello = hostile_hello(*secret, 0, 1);
		if (hostile_init(&h) || hostile_listen(&h, IP, at) ||
		    write(fds[1], at, sizeof(*at)) != sizeof(*at))
			_exit(1);
		for (;;)
			hostile_refuse(&h, 1000, *secret, NPULINK_WIRE_LATER, &knocks);
	}
	close(fds[1]);
	if (read(fds[0], at, sizeof(*at)) != sizeof(*at))
		pid = -1;
	close(fds[0]);
	return pid;
}

/* After all that, the one who was meant can still come. */
static bool true_peer_comes(struct victim *v)
{
	struct npulink_wire_msg msg = {
		.type = NPULINK_WIRE_DATA, .len = LEN, .size = LEN,
		.call = { .collective = NPULINK_COLL_ALLREDUCE, .dtype = NPULINK_INT32 },
	};
	char data[sizeof(msg) + LEN];
	struct npulink_result res;
	struct hostile h;
	bool ok;

	if (!is_taken(&h, v))
		return false;
	ok = !hostile_prove(&h, v->secret);
	memcpy(data, &msg, sizeof(msg));
	memset(data + sizeof(msg), 0x42, LEN);
	hostile_poll(&h, 200, 0);
	ok = ok && !hostile_send(&h, data, sizeof(data)) && !raw_wait(v->fd, v->seq, &res) &&
	     !res.status && v->mem[0] == 0x42 && v->mem[LEN - 1] == 0x42 && !v->mem[LEN];
	hostile_end(&h);
	return ok;
}

static void strangers(void)
{
	uint8_t *secret;
	uint16_t at = 0;
	struct victim v;
	pid_t pid;

	pid = neighbour(&at, &secret);
	/* Who says nothing is dropped after that time. */
	if (pid < 0 || victim_init_at(&v, 1, IP, at, LEN, 3000))
		ksft_exit_fail_msg("no victim\n");
	memcpy(secret, v.secret, sizeof(v.secret));
	for (unsigned int i = 0; i < ARRAY_SIZE(wrong_hellos); i++)
		chosen_result(refused(&v, &wrong_hellos[i]) && !victim_cause(&v) && others_go_on(),
			      "a caller says %s\n", wrong_hellos[i].what);
	for (unsigned int i = 0; i < ARRAY_SIZE(wrong_proofs); i++)
		chosen_result(dropped(&v, i) && !victim_cause(&v) && others_go_on(),
			      "a caller whose hello is right sends %s\n", wrong_proofs[i]);
	chosen_result(true_peer_comes(&v), "the true peer still comes through\n");
	victim_end(&v);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* What who is called says: all of it but the proof, which is wrong. */
static struct npulink_wire_welcome unproved_welcome(void)
{
	return (struct npulink_wire_welcome) {
		.magic = NPULINK_WIRE_MAGIC, .version = NPULINK_WIRE_VERSION,
	};
}

static const char *const wrong_answers[] = {
	"nothing", "a wrong proof", "for another connection", "a refusal",
	"a refusal for good, without a proof", "that versions differ",
};

/* We are called, and do not know the secret. */
static bool answer_wrong(struct hostile *h, const struct victim *v, unsigned int kind)
{
	struct npulink_wire_refusal refusal = { };
	bool ok;

	h->nrecv = 0;
	h->lost = false;
	h->welcome = unproved_welcome();
	ok = !hostile_called(h, 20000) && h->hello.magic == NPULINK_WIRE_MAGIC &&
	     !memmem(&h->hello, sizeof(h->hello), v->secret, 16);
	h->twist = kind == 2;
	refusal.reason = kind == 4 ? NPULINK_WIRE_FAILED : NPULINK_WIRE_VERSIONS;
	if (kind > 2)
		ok = ok && !rdma_reject(h->id, &refusal, kind > 3 ? sizeof(refusal) : 0);
	else if (ok)
		ok = !hostile_answer(h, kind > 1 ? v->secret : NULL, kind ? sizeof(h->welcome) : 0);
	h->twist = 0;
	if (kind < 3 && ok)
		ok = hostile_dropped(h, 20000) && !h->nrecv;
	hostile_close(h);
	return ok;
}

/* The caller proves itself as well. */
static bool answer_right(struct hostile *h, const struct victim *v)
{
	struct npulink_wire_auth auth = { };
	bool ok;

	h->nrecv = 0;
	h->lost = false;
	ok = !hostile_called(h, 20000);
	h->welcome = unproved_welcome();
	ok = ok && !hostile_answer(h, v->secret, sizeof(h->welcome));
	if (ok)
		hostile_poll(h, 20000, 1);
	hostile_sign_auth(h, v->secret, &auth);
	return ok && h->nrecv == 1 && h->last_len == sizeof(auth) &&
	       !memcmp(h->last, &auth, sizeof(auth));
}

static void impostor(void)
{
	struct victim v;
	struct hostile h;
	uint16_t ours = 0;

	if (hostile_init(&h) || hostile_listen(&h, IP, &ours) || victim_init(&v, 0, ours, LEN))
		ksft_exit_fail_msg("no victim that calls\n");
	for (unsigned int i = 0; i < ARRAY_SIZE(wrong_answers); i++)
		chosen_result(answer_wrong(&h, &v, i) && !victim_cause(&v),
			      "called, we answer %s\n", wrong_answers[i]);
	chosen_result(answer_right(&h, &v),
		      "called, we answer right: the caller proves itself as well\n");
	hostile_end(&h);
	victim_end(&v);
}

/* ---- who is dead, and who is only late ------------------------------------------------ */

#define BOUND	800		/* ms */
#define SOONEST	(BOUND * 3 / 4)
#define TRIES	3

struct absence {
	const char *what;
	const char *ip;
	uint8_t reason;		/* what a call is answered with, if it is to @IP */
	bool proved;
	uint32_t code;		/* 0: it is not lost */
	int soonest;		/* ms */
};

static const struct absence absences[] = {
	{ "is on a machine that does not answer", "10.87.0.77", 0, false, EHOSTDOWN, SOONEST },
	{ "is on a machine without npulink", IP, 0, false, ESRCH, SOONEST },
	{ "is on a machine that is alive", IP, NPULINK_WIRE_LATER, true, 0, 2 * BOUND },
	{ "has gone from its machine", IP, NPULINK_WIRE_NOBODY, false, ESRCH, SOONEST },
	{ "has failed on its machine", IP, NPULINK_WIRE_FAILED, true, ECONNABORTED, 0 },
	{ "has another version of npulink", IP, NPULINK_WIRE_VERSIONS, false, EPROTONOSUPPORT,
	  SOONEST },
	{ "is alive, as a stranger says", IP, NPULINK_WIRE_LATER, false, EHOSTDOWN, SOONEST },
	{ "has failed, as a stranger says", IP, NPULINK_WIRE_FAILED, false, EHOSTDOWN, SOONEST },
};

static bool lost_right(const struct victim *v, const struct absence *a)
{
	const uint8_t mapped[12] = { [10] = 0xff, 0xff };
	struct npulink_comm_status st;
	char ip[INET_ADDRSTRLEN];

	if (raw_status(v->fd, v->comm, &st))
		return false;
	inet_ntop(AF_INET, st.out_peer_ip + 12, ip, sizeof(ip));
	if (st.out_cause == NPULINK_CAUSE_LINK && st.out_code == a->code &&
	    st.out_rank == v->rank && st.out_peer == !v->rank && !st.out_step &&
	    !st.out_number && !memcmp(st.out_peer_ip, mapped, sizeof(mapped)) &&
	    !strcmp(ip, a->ip) && !strcmp(st.out_port, "rxe8/1"))
		return true;
	ksft_print_msg("cause %u code %u of rank %u and %u, step %u of %llu, %s over %s\n",
		       st.out_cause, st.out_code, st.out_rank, st.out_peer, st.out_step,
		       (unsigned long long)st.out_number, ip, st.out_port);
	return false;
}

/* @rank 0 calls its peer, rank 1 waits to be called. */
static bool absent_once(const struct absence *a, uint32_t rank)
{
	bool knocks = false, served = a->reason, ok;
	struct npulink_result res;
	int64_t start, took;
	struct hostile h;
	struct victim v;
	uint16_t ours = 0;
	int called = 0;

	ok = !hostile_init(&h) && !hostile_listen(&h, IP, &ours);
	start = hostile_ms();
	if (!ok || victim_init_at(&v, rank, a->ip, served ? ours : 0, LEN, BOUND))
		return false;
	while (!victim_cause(&v) && hostile_ms() - start < (a->code ? BOUND + 1500 : 2 * BOUND))
		called += hostile_refuse(&h, 20, a->proved ? v.secret : NULL, a->reason, &knocks);
	took = hostile_ms() - start;
	if (a->code) {
		/* The host may be busy, so the bound itself is rdma_faults's. */
		ok = took >= a->soonest && took < BOUND + 1500 && !raw_wait(v.fd, v.seq, &res) &&
		     res.status == -ENOLINK && lost_right(&v, a);
	} else {
		ok = !victim_cause(&v);
	}
	/* Who calls needs to knock only if nobody answers. */
	ok = ok && !served == !called && (!served || !rank || knocks);
	if (!ok)
		ksft_print_msg("%d ms, called %d times\n", (int)took, called);
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

/*
 * Times that are as short as this are not kept by a host that has other things to do, which may
 * even keep us from saying that we are alive. But not each time.
 */
static bool absent(const struct absence *a, uint32_t rank)
{
	for (int i = 0; i < TRIES; i++)
		if (absent_once(a, rank))
			return true;
	return false;
}

/* As long as it needs nothing of a rank that has gone, it goes on. */
static bool unneeded_once(uint32_t rank)
{
	const struct absence *a = &absences[3];
	uint16_t ours = 0;
	struct npulink_result res;
	bool knocks = false, ok;
	struct hostile h;
	struct victim v;
	int64_t start;

	ok = !hostile_init(&h) && !hostile_listen(&h, IP, &ours);
	if (!ok || victim_plan(&v, NPULINK_STEP_RECV, rank, IP, ours, LEN, BOUND))
		return false;
	hostile_refuse(&h, 2 * BOUND, NULL, a->reason, &knocks);
	ok = !victim_cause(&v);
	start = hostile_ms();
	ok = ok && !victim_post(&v);
	while (ok && !victim_cause(&v) && hostile_ms() - start < BOUND)
		hostile_refuse(&h, 20, NULL, a->reason, &knocks);
	ok = ok && hostile_ms() - start < BOUND && !raw_wait(v.fd, v.seq, &res) &&
	     res.status == -ENOLINK && lost_right(&v, a);
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

static bool unneeded(uint32_t rank)
{
	for (int i = 0; i < TRIES; i++)
		if (unneeded_once(rank))
			return true;
	return false;
}

/* ---- with the secret ------------------------------------------------------------------- */

struct lie {
	const char *what;
	void (*make)(struct npulink_wire_msg *msg);
	size_t len;		/* of the whole, if not 0 */
	bool twice;
};

#define LIE(name, body) static void name(struct npulink_wire_msg *m) { body; }

LIE(lie_none, (void)m)
LIE(lie_type0, m->type = 0)
LIE(lie_type, m->type = NPULINK_WIRE_TYPES)
LIE(lie_good, m->type = NPULINK_WIRE_GOOD; m->size = 0)
LIE(lie_flags, m->flags = 0x80)
LIE(lie_twice, m->flags = NPULINK_WIRE_TWICE)
LIE(lie_renewed, m->flags = NPULINK_WIRE_RENEWED)
LIE(lie_seq, m->seq = 1)
LIE(lie_credits, m->credits = 1)
LIE(lie_reserved, m->reserved[33] = 1)
LIE(lie_size, m->size = LEN - 1)
LIE(lie_len, m->len = LEN + 1)
LIE(lie_huge, m->len = ~0ULL)
LIE(lie_pos, m->pos = 7)
LIE(lie_whole, m->pos = ~0U)
LIE(lie_channel, m->channel = 3)
LIE(lie_call, m->call.count++)
LIE(lie_rkey, m->rkey = 1)
LIE(lie_imm, m->imm = 1)
LIE(lie_sum, m->sum = 1)
LIE(lie_grant, m->type = NPULINK_WIRE_GRANT; m->size = 0)
LIE(lie_grant_far, m->type = NPULINK_WIRE_GRANT; m->off = LEN - 4; m->size = LEN)
LIE(lie_abort, m->type = NPULINK_WIRE_ABORT)
LIE(lie_ask, m->type = NPULINK_WIRE_ASK; m->status.next = 1)
LIE(lie_status, m->type = NPULINK_WIRE_STATUS; memset(&m->status, 0, sizeof(m->status)))

static void lie_itself(struct npulink_wire_msg *m)
{
	lie_status(m);
	m->status.task = 'S';
	m->status.called = NPULINK_WIRE_RUNNING;
}

#define PLAIN(text, fn) { .what = text, .make = fn }

static const struct lie lies[] = {
	PLAIN("no type", lie_type0),
	PLAIN("an unknown type", lie_type),
	PLAIN("a word about checksums", lie_good),
	PLAIN("unknown flags", lie_flags),
	PLAIN("a flag of checksums", lie_twice),
	PLAIN("a flag of grants", lie_renewed),
	PLAIN("a number too far", lie_seq),
	{ .what = "the same message again", .make = lie_none, .twice = true },
	PLAIN("credits that it never got", lie_credits),
	PLAIN("reserved bytes", lie_reserved),
	PLAIN("less than it says", lie_size),
	PLAIN("more than the step has", lie_len),
	PLAIN("a huge length", lie_huge),
	PLAIN("a step that is not there", lie_pos),
	PLAIN("an operation as a whole", lie_whole),
	PLAIN("a channel that is not there", lie_channel),
	PLAIN("another call", lie_call),
	PLAIN("a key with data", lie_rkey),
	PLAIN("an immediate with data", lie_imm),
	PLAIN("a sum that nobody asked for", lie_sum),
	{ .what = "a grant of nothing", .make = lie_grant, .len = sizeof(struct npulink_wire_msg) },
	{ .what = "a grant beyond the step", .make = lie_grant_far,
	  .len = sizeof(struct npulink_wire_msg) },
	PLAIN("an abort without a cause", lie_abort),
	{ .what = "a question with an answer", .make = lie_ask,
	  .len = sizeof(struct npulink_wire_msg) },
	{ .what = "an answer without meaning", .make = lie_status,
	  .len = sizeof(struct npulink_wire_msg) },
	{ .what = "that it waits for itself", .make = lie_itself,
	  .len = sizeof(struct npulink_wire_msg) },
	{ .what = "half a header", .make = lie_none, .len = 60 },
};

static bool caught(const struct lie *lie)
{
	char data[sizeof(struct npulink_wire_msg) + LEN];
	struct npulink_wire_msg msg = step_msg(LEN);
	size_t len = lie->len ? lie->len : sizeof(data);
	struct victim v;
	struct hostile h;
	bool ok;

	if (victim_init(&v, 1, 0, LEN))
		return false;
	lie->make(&msg);
	memcpy(data, &msg, sizeof(msg));
	memset(data + sizeof(msg), 0x42, LEN);
	ok = let_in(&h, &v, false) && !hostile_send(&h, data, len);
	if (lie->twice) {
		struct npulink_result res;

		hostile_poll(&h, 100, 0);
		ok = ok && !raw_wait(v.fd, v.seq, &res) && !res.status &&
		     !hostile_send(&h, data, len) && hostile_dropped(&h, 20000) &&
		     victim_cause(&v) == NPULINK_CAUSE_LINK && others_go_on();
	} else {
		ok = ok && cut_off(&h, &v) && !v.mem[0];
	}
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

/* What a member says of a link that was lost elsewhere. */
struct told_port {
	const char *what;
	char port[32];
	bool good;
};

static const struct told_port told_ports[] = {
	{ "that names a port", "mlx5_0/1", true },
	{ "that names no port", "", true },
	{ "with a port that cannot be printed", "rxe0\033[2J", false },
	{ "with a port that has a blank", "rxe0 1", false },
	{ "with a port and more behind it", "rxe0/1\0x", false },
	{ "with a port without end", "0123456789012345678901234567890", false },
};

static bool told(const struct told_port *t)
{
	static const uint8_t ip[16] = { [10] = 0xff, 0xff, 10, 1, 2, 3 };
	struct {
		struct npulink_wire_msg msg;
		struct npulink_wire_cause cause;
	} __packed data = {
		.msg = { .type = NPULINK_WIRE_ABORT, .size = sizeof(data.cause) },
		.cause = {
			.cause = NPULINK_CAUSE_LINK, .peer = 1, .step = 5, .number = 7,
			.code = EHOSTDOWN,
		},
	};
	struct npulink_comm_status st;
	struct npulink_result res;
	struct victim v;
	struct hostile h;
	bool ok;

	memcpy(data.cause.ip, ip, sizeof(ip));
	memcpy(data.cause.port, t->port, sizeof(t->port));
	if (strlen(t->port) == sizeof(t->port) - 1)
		data.cause.port[sizeof(t->port) - 1] = 'x';
	if (victim_init(&v, 1, 0, LEN))
		return false;
	ok = let_in(&h, &v, false) && !hostile_send(&h, &data, sizeof(data)) &&
	     !raw_wait(v.fd, v.seq, &res) && res.status == -ENOLINK &&
	     !raw_status(v.fd, v.comm, &st) && st.out_cause == NPULINK_CAUSE_LINK;
	if (ok && t->good)
		ok = !st.out_rank && st.out_peer == 1 && st.out_step == 5 && st.out_number == 7 &&
		     st.out_code == EHOSTDOWN && !memcmp(st.out_peer_ip, ip, sizeof(ip)) &&
		     !strcmp(st.out_port, t->port);
	else if (ok)
		ok = st.out_rank == 1 && !st.out_peer && st.out_code == EPROTO &&
		     !strcmp(st.out_port, "rxe8/1");
	ok = ok && hostile_dropped(&h, 20000);
	hostile_end(&h);
	victim_end(&v);
	return ok;
}

/* ---- one who goes --------------------------------------------------------------------- */

#define CROWD	8

/* It leaves those who do not take what it says at all: it waits for all at a time. */
static bool leaves_a_crowd(void)
{
	struct npulink_slot slot = { .min_len = LEN, .access = NPULINK_SLOT_WRITE };
	struct npulink_step steps[CROWD];
	struct npulink_peer peers[CROWD];
	struct npulink_comm_peers cmd = {
		.size = sizeof(cmd), .npeers = CROWD, .peers = (uintptr_t)peers,
	};
	struct sockaddr_in sin = listener();
	struct hostile h[CROWD] = { };
	uint8_t secret[16];
	int64_t start;
	int fd, plan;
	bool ok;

	raw_secret(secret);
	fd = raw_open(0);
	cmd.comm_id = raw_comm(fd, secret, CROWD, CROWD + 1);
	for (unsigned int i = 0; i < CROWD; i++) {
		if (rxe_peer(&peers[i], fd, IP, htons(1)))
			return false;
		steps[i] = raw_step(NPULINK_STEP_RECV, LEN / CROWD);
		steps[i].recv_peer = i;
		steps[i].dst_off = LEN / CROWD * i;
	}
	ok = !raw_ioctl(fd, NPULINK_COMM_PEERS, &cmd);
	plan = raw_plan(fd, cmd.comm_id, &slot, 1, steps, CROWD);
	ok = ok && plan > 0;
	for (unsigned int i = 0; ok && i < CROWD; i++) {
		ok = !hostile_init(&h[i]);
		h[i].slots = 1;
		h[i].hello = hostile_hello(secret, i, CROWD);
		ok = ok && hostile_call(&h[i], &sin, secret, &h[i].hello, sizeof(h[i].hello)) ==
			   RDMA_CM_EVENT_ESTABLISHED && !hostile_prove(&h[i], secret);
		/* Its first message, and not the next one. */
		if (ok)
			hostile_poll(&h[i], 200, 0);
		ok = ok && !h[i].lost;
	}
	start = hostile_ms();
	ok = ok && !raw_destroy(fd, plan) && !raw_destroy(fd, cmd.comm_id);
	start = hostile_ms() - start;
	/* A second each it was. */
	if (!ok || start > CROWD * 500)
		ksft_print_msg("%d ms\n", (int)start);
	ok = ok && start <= CROWD * 500;
	for (unsigned int i = 0; i < CROWD; i++)
		if (h[i].channel)
			hostile_end(&h[i]);
	close(fd);
	return ok && others_go_on();
}

/*
 * Proves itself, does all that is expected of it if @well, and hangs up, all at once. What it
 * has said is heard first.
 */
static bool hangs_up(bool well)
{
	char data[sizeof(struct npulink_wire_msg) + LEN];
	struct npulink_wire_msg msg = step_msg(LEN), bye = { .type = NPULINK_WIRE_BYE, .seq = 1 };
	struct npulink_wire_hello hello;
	struct sockaddr_in sin = listener();
	struct npulink_result res;
	struct victim v;
	struct hostile h;
	bool ok;

	if (victim_init(&v, 1, 0, LEN))
		return false;
	memcpy(data, &msg, sizeof(msg));
	memset(data + sizeof(msg), 0x42, LEN);
	hello = hostile_hello(v.secret, 0, 1);
	ok = !hostile_init(&h);
	ok = ok && hostile_call(&h, &sin, v.secret, &hello,
				sizeof(hello)) == RDMA_CM_EVENT_ESTABLISHED &&
	     !hostile_prove(&h, v.secret);
	if (well) {
		int64_t until = hostile_ms() + 20000;
		bool ready = false;
		struct ibv_wc wc;
		int sent = 0;

		while (ok && sent < 3 && hostile_ms() < until) {
			if (ibv_poll_cq(h.cq, 1, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
				continue;
			sent += wc.opcode == IBV_WC_SEND;
			/* Who was called says when it listens: what comes before is not heard. */
			if (wc.opcode != IBV_WC_RECV || ready)
				continue;
			ready = true;
			ok = !hostile_send_at(&h, 512, data, sizeof(data)) &&
			     !hostile_send_at(&h, 1024, &bye, sizeof(bye));
		}
	}
	hostile_end(&h);
	if (well)
		ok = ok && !raw_wait(v.fd, v.seq, &res) && !res.status &&
		     v.mem[LEN - 1] == 0x42 && !victim_cause(&v);
	victim_end(&v);
	return ok;
}

static bool hang_up_often(bool well)
{
	for (int i = 0; i < 20; i++)
		if (!hangs_up(well))
			return false;
	return others_go_on();
}

static void *abort_soon(void *arg)
{
	struct victim *v = arg;

	while (__atomic_load_n(&v->comm, __ATOMIC_ACQUIRE) <= 0)
		;
	usleep(rand() % 1000);
	raw_abort(v->fd, v->comm, 1);
	return NULL;
}

/* The communicator fails while its first plan that needs the other machine is made. */
static bool fails_while_it_connects(void)
{
	struct victim v = {};
	pthread_t thread;
	int i, rc;

	for (i = 0; i < 100; i++) {
		v.comm = 0;
		if (pthread_create(&thread, NULL, abort_soon, &v))
			return false;
		rc = victim_init(&v, i & 1, 0, LEN);
		pthread_join(thread, NULL);
		victim_end(&v);
		if (rc && rc != -ECANCELED)
			return false;
	}
	return others_go_on();
}

/* ---- one of our own ------------------------------------------------------------------- */

#define LINK(verb, port)	"build/tools/npulink link " verb " npu0 rdma " port " 2>/dev/null"

/* A port is unbound in another network namespace; here it is bound already, whatever its name. */
static bool unbinds_elsewhere(void)
{
	struct npulink_wire_msg msg = step_msg(LEN);
	char data[sizeof(msg) + LEN];
	struct npulink_result res;
	struct victim v;
	struct hostile h;
	bool ok;

	/* It takes as long as it takes, and we do not take what we are asked meanwhile. */
	if (victim_init_at(&v, 1, IP, 0, LEN, 3600000))
		return false;
	memcpy(data, &msg, sizeof(msg));
	memset(data + sizeof(msg), 0x42, LEN);
	ok = let_in(&h, &v, false) &&
	     (access("/proc/self/ns/net", F_OK) ||	/* the kernel knows one only */
	      !sh("unshare -n sh -c '" LINK("add", "rxe8/1") " && " LINK("del", "rxe8/1") "'")) &&
	     sh(LINK("add", "rxe8/01")) && !hostile_send(&h, data, sizeof(data)) &&
	     ended(&v, v.seq, &res) && !res.status && v.mem[LEN - 1] == 0x42;
	hostile_end(&h);
	victim_end(&v);
	return ok && others_go_on();
}

#define REFERENCES	"/sys/module/npulink_rdma/refcnt"

static int64_t idle_refs;	/* as long as nobody but the bystanders has a session */

/* A process binds a port in a network namespace, maybe uses it, and both end. */
static bool binds_and_ends(bool uses)
{
	struct npulink_port_info info = { .size = sizeof(info) };
	pid_t pid;

	if (access("/proc/self/ns/net", F_OK))
		return true;	/* the kernel knows one only */
	/* What was closed takes a moment to be given back. */
	if (!RAW_EVENTUALLY(raw_read(REFERENCES) == idle_refs))
		return false;
	pid = fork();
	if (!pid) {
		int fd, other;

		RAW_CHECK(!unshare(CLONE_NEWNET) && !sh(LINK("add", "rxe8/1")));
		RAW_CHECK(raw_read(REFERENCES) > idle_refs);
		fd = raw_open(0);
		RAW_CHECK(!uses || !raw_ioctl(fd, NPULINK_PORT_INFO, &info));
		/* Who is called in one cannot be called in another one. */
		RAW_CHECK(!unshare(CLONE_NEWNET) && !sh(LINK("add", "rxe8/1")));
		RAW_CHECK(raw_ioctl(fd, NPULINK_PORT_INFO, &info) == (uses ? -EHOSTUNREACH : 0));
		other = raw_open(0);
		RAW_CHECK(!raw_ioctl(other, NPULINK_PORT_INFO, &info));
		_exit(0);
	}
	return !raw_reap(pid) && RAW_EVENTUALLY(raw_read(REFERENCES) == idle_refs);
}

#define SESSION_LIMIT	"/sys/module/npulink/parameters/max_user_sessions"

/* What was closed takes a moment to be given back. */
static bool connects(struct victim *v, uint32_t rank)
{
	return RAW_EVENTUALLY(!victim_init(v, rank, 0, LEN) || (victim_end(v), false));
}

#define GROUPS		"/sys/fs/cgroup"
#define GROUP		GROUPS "/npulink-rdma"
#define SESSION_OBJECTS	11

/* What is charged to the group for rxe8. */
static int charged_objects(void)
{
	FILE *f = fopen(GROUP "/rdma.current", "re");
	char line[128];
	int n = -1;

	while (f && n < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "rxe8 hca_handle=%*d hca_object=%d", &n) != 1)
			n = -1;
	if (f)
		fclose(f);
	return n;
}

/* Its cgroup has only so many objects of the network device, enough for one connection. */
static bool is_charged(void)
{
	pid_t pid;
	bool ok;

	if ((mkdir(GROUP, 0755) && errno != EEXIST) ||
	    raw_write(GROUP "/rdma.max", "rxe8 hca_object=21"))
		return false;
	pid = fork();
	if (!pid) {
		struct victim v[2];

		RAW_CHECK(!raw_write(GROUP "/cgroup.procs", "0"));
		RAW_CHECK(charged_objects() == 0);
		for (unsigned int i = 0; i < 2; i++) {
			RAW_CHECK(connects(&v[0], i));
			RAW_CHECK(charged_objects() == SESSION_OBJECTS);
			RAW_CHECK(victim_init(&v[1], 1 - i, 0, LEN) == -EDQUOT);
			RAW_CHECK(charged_objects() == SESSION_OBJECTS);
			victim_end(&v[1]);
			victim_end(&v[0]);
			RAW_CHECK(RAW_EVENTUALLY(charged_objects() == 0));
		}
		_exit(0);
	}
	ok = !raw_reap(pid);
	/*
	 * A group that is removed with a limit set, and nothing charged, stays on the device's list
	 * when it is freed, and Linux (6.1, 6.12) crashes when the device goes.
	 */
	ok = !raw_write(GROUP "/rdma.max", "rxe8 hca_handle=max hca_object=max") && ok;
	return RAW_EVENTUALLY(!rmdir(GROUP)) && ok;
}

/* Has more connections than it may; root may have as many. */
static bool connects_too_often(void)
{
	char text[24];
	pid_t pid;
	bool ok;

	snprintf(text, sizeof(text), "%lld", (long long)raw_read(SESSION_LIMIT));
	ok = raw_read(SESSION_LIMIT) >= 1024 && !raw_write(SESSION_LIMIT, "2");
	pid = fork();
	if (!pid) {
		struct victim v[4];

		unlimit_memlock();
		for (unsigned int i = 0; i < 3; i++)
			RAW_CHECK(!victim_init(&v[i], i & 1, 0, LEN));
		for (unsigned int i = 0; i < 3; i++)
			victim_end(&v[i]);
		become(BOB);
		for (unsigned int i = 0; i < 2; i++) {
			RAW_CHECK(connects(&v[0], 0) && connects(&v[1], 1));
			RAW_CHECK(victim_init(&v[2], 0, 0, LEN) == -EDQUOT);
			victim_end(&v[2]);
			victim_end(&v[0]);
			RAW_CHECK(connects(&v[3], 0));
			victim_end(&v[1]);
			victim_end(&v[3]);
		}
		_exit(0);
	}
	ok = !raw_reap(pid) && ok;
	return !raw_write(SESSION_LIMIT, text) && ok;
}

/* Tells who goes on after a failure, all of them here, that one of them is elsewhere. */
static bool misplaces_who_goes_on(void)
{
	struct npulink_comm_shrink cmd = { .size = sizeof(cmd) };
	struct npulink_peer peer;
	struct npulink_comm_peers peers = {
		.size = sizeof(peers), .first = 1, .npeers = 1, .peers = (uintptr_t)&peer,
	};
	uint8_t secret[16];
	int fds[2];
	bool ok;

	raw_secret(secret);
	for (unsigned int i = 0; i < 2; i++)
		fds[i] = raw_open(i);
	cmd.comm_id = raw_comm(fds[0], secret, 0, 2);
	ok = raw_comm(fds[1], secret, 1, 2) > 0 && !rxe_peer(&peer, fds[0], IP, htons(1)) &&
	     !raw_abort(fds[0], cmd.comm_id, 1) && !raw_ioctl(fds[0], NPULINK_COMM_SHRINK, &cmd);
	peers.comm_id = cmd.out_id;
	ok = ok && cmd.out_nranks == 2 &&
	     raw_ioctl(fds[0], NPULINK_COMM_PEERS, &peers) == -EINVAL &&
	     !raw_abort(fds[0], cmd.out_id, 1);
	cmd.comm_id = cmd.out_id;
	ok = ok && !raw_ioctl(fds[0], NPULINK_COMM_SHRINK, &cmd);
	for (unsigned int i = 0; i < 2; i++)
		close(fds[i]);
	return ok && others_go_on();
}

/* ---- all of it --------------------------------------------------------------------------- */

#define TRY(value)	sh("echo " value " 2>/dev/null >" RXE_PARAMETERS "peer_timeout")

/* What an administrator may say. */
static bool parameter_checked(void)
{
	return TRY("0") && TRY("99") && TRY("3600001") && TRY("-1") && TRY("soon") &&
	       raw_read(RXE_PARAMETERS "peer_timeout") == 20000 && !TRY("100") && !TRY("3600000") &&
	       raw_read(RXE_PARAMETERS "peer_timeout") == 3600000 && !TRY("20000");
}

int main(void)
{
	rxe_apart();
	setvbuf(stdout, NULL, _IOLBF, 0);
	ksft_print_header();
	set_up();
	ksft_set_plan(ARRAY_SIZE(wrong_hellos) + ARRAY_SIZE(wrong_proofs) +
		      ARRAY_SIZE(wrong_answers) + 2 * ARRAY_SIZE(absences) + 4 + ARRAY_SIZE(lies) +
		      ARRAY_SIZE(told_ports) + 13);
	if (!others_go_on())
		ksft_exit_fail_msg("the bystanders are not connected\n");
	idle_refs = raw_read(REFERENCES);
	chosen_result(parameter_checked(), "peer_timeout out of range\n");
	strangers();
	impostor();
	for (unsigned int i = 0; i < 2 * ARRAY_SIZE(absences); i++)
		chosen_result(absent(&absences[i / 2], i % 2) && others_go_on(),
			      "the peer of a rank that %s %s\n",
			      i % 2 ? "is to be called" : "calls", absences[i / 2].what);
	for (unsigned int i = 0; i < 2; i++)
		chosen_result(unneeded(i) && others_go_on(),
			      "a peer that has gone is missed when it is needed, %s\n",
			      i ? "by who is to be called" : "by who calls");
	for (unsigned int i = 0; i < ARRAY_SIZE(lies); i++)
		chosen_result(caught(&lies[i]), "a member sends %s\n", lies[i].what);
	for (unsigned int i = 0; i < ARRAY_SIZE(told_ports); i++)
		chosen_result(told(&told_ports[i]), "a member sends an abort %s\n",
			      told_ports[i].what);
	chosen_result(leaves_a_crowd(), "a rank leaves many that take nothing\n");
	chosen_result(hang_up_often(true), "a member does its part, leaves and hangs up\n");
	chosen_result(hang_up_often(false), "a member proves itself and hangs up\n");
	chosen_result(unbinds_elsewhere(), "the port is unbound in another network namespace\n");
	for (unsigned int i = 0; i < 2; i++)
		chosen_result(binds_and_ends(i) && others_go_on(),
			      "a network namespace ends in which a port is bound%s\n",
			      i ? " and used" : "");
	if (raw_write(GROUPS "/cgroup.subtree_control", "+rdma"))
		ksft_test_result_skip("a cgroup has only so many objects for connections: no "
				      "such controller\n");
	else
		chosen_result(is_charged() && others_go_on(),
			      "a cgroup has only so many objects for connections\n");
	chosen_result(connects_too_often() && others_go_on(),
		      "a user has more connections than he may\n");
	chosen_result(misplaces_who_goes_on(), "one who goes on says that another one is elsewhere\n");
	chosen_result(fails_while_it_connects(), "an abort while the connection is begun\n");
	tear_down();
	ksft_finished();
}
