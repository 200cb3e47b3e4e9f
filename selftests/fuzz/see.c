// SPDX-License-Identifier: GPL-2.0
/*
 * see.c - a process of fuzz_netlink.c that asks netlink and reads and writes /sys, as a user or as
 * root: messages with and without sense, dumps that are read bit by bit or never, groups that are
 * joined and left. A user is told only what is his, and changes nothing.
 */
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include "abi_genl.h"
#include "nl.h"
#include "raw.h"
#include "see.h"

#define HELD	6
#define FILES_MAX	700

struct see_world *see;

static enum owner me;
static int held[HELD];			/* sockets with dumps that go on */
static char files[FILES_MAX][256];
static uint32_t nfiles;

void see_complain(const char *fmt, ...)
{
	char text[sizeof(see->wrong)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!see->wrong[0])
		memcpy(see->wrong, text, sizeof(text));
	_exit(1);
}

/* ---- what is told */

static bool is_mine(uint64_t owner)
{
	return owner == me || owner == OF_BOTH;
}

static void check_call(const char *what, uint64_t set_id)
{
	if (!is_mine(set_id - SEE_CALL))
		see_complain("%s tells user %u of call %#llx", what, ex.uid,
			     (unsigned long long)set_id);
}

static void check_ranks(const char *what, struct nlattr *nranks)
{
	if (nranks && !is_mine(nl_u32(nranks) - SEE_RANKS(0)))
		see_complain("%s tells user %u of a communicator of %u ranks", what, ex.uid,
			     nl_u32(nranks));
}

/* Whoever is not told the user may not be told the process, and the user is the one who asks. */
static void check_process(const char *what, struct nlattr *uid, struct nlattr *pid,
			  struct nlattr *file)
{
	if (!uid && (pid || file))
		see_complain("%s tells of a process without its user", what);
	if (uid && ex.prog->as == AS_USER && nl_u32(uid) != ex.uid)
		see_complain("%s tells user %u of user %u", what, ex.uid, nl_u32(uid));
}

static void check_flight(struct nlattr **a)
{
	struct npulink_flight_op *ops;
	size_t n, i;

	check_ranks("FLIGHT_GET", a[NPULINK_A_FLIGHT_NRANKS]);
	check_process("FLIGHT_GET", a[NPULINK_A_FLIGHT_UID], a[NPULINK_A_FLIGHT_PID], NULL);
	if (!a[NPULINK_A_FLIGHT_OPS])
		return;
	ops = nl_value(a[NPULINK_A_FLIGHT_OPS]);
	n = (a[NPULINK_A_FLIGHT_OPS]->nla_len - NLA_HDRLEN) / sizeof(*ops);
	for (i = 0; i < n; i++)
		check_call("FLIGHT_GET", ops[i].call.set_id);
}

static void check_op(struct nlattr **a)
{
	struct nlattr *call[NL_ATTRS], *nest = a[NPULINK_A_OP_CALL];
	const char *name = a[NPULINK_A_OP_ALGORITHM] ? nl_value(a[NPULINK_A_OP_ALGORITHM]) : "";

	if (nest) {
		nl_parse(nl_value(nest), nest->nla_len - NLA_HDRLEN, call);
		if (call[NPULINK_A_CALL_SET_ID])
			check_call("OP_GET", nl_u64(call[NPULINK_A_CALL_SET_ID]));
	}
	if (strncmp(name, "see-", 4) || !is_mine(atoi(name + 4)))
		see_complain("OP_GET tells user %u of algorithm %.20s", ex.uid, name);
}

/* It tells the first network namespace all but processes and users, and others nothing. */
static void check_event(struct nlattr **a)
{
	static const uint8_t hidden[] = {
		NPULINK_A_EVENT_COMM, NPULINK_A_EVENT_RANK, NPULINK_A_EVENT_PEER,
		NPULINK_A_EVENT_NUMBER, NPULINK_A_EVENT_CIRCLE,
	};
	size_t i;

	for (i = 0; ex.prog->as == AS_NAMESPACE && i < ARRAY_SIZE(hidden); i++)
		if (a[hidden[i]])
			see_complain("EVENT tells another namespace attribute %u", hidden[i]);
	/* Others beside us may have a port in the first one, which is told there. */
	if ((ex.prog->as == AS_NAMESPACE || !getenv("NPULINK_BESIDE")) &&
	    (a[NPULINK_A_EVENT_IP] || a[NPULINK_A_EVENT_PORT]))
		see_complain("EVENT tells an address");
}

static void told(uint8_t cmd, struct nlattr **a)
{
	if (me == OF_ROOT)
		return;
	see->told[me][cmd]++;
	switch (cmd) {
	case NPULINK_GENL_CMD_COMM_GET:
		check_ranks("COMM_GET", a[NPULINK_A_COMM_NRANKS]);
		check_process("COMM_GET", a[NPULINK_A_COMM_UID], NULL, NULL);
		break;
	case NPULINK_GENL_CMD_RANK_GET:
		check_process("RANK_GET", a[NPULINK_A_RANK_UID], a[NPULINK_A_RANK_PID],
			      a[NPULINK_A_RANK_FILE]);
		break;
	case NPULINK_GENL_CMD_FILE_GET:
		check_process("FILE_GET", a[NPULINK_A_FILE_UID], a[NPULINK_A_FILE_PID],
			      a[NPULINK_A_FILE_ID]);
		break;
	case NPULINK_GENL_CMD_BUF_GET:
		if (nl_u32(a[NPULINK_A_BUF_KIND]) == NPULINK_BUF_KIND_USER &&
		    !is_mine(nl_u64(a[NPULINK_A_BUF_LEN]) / 8 % SEE_MARKS))
			see_complain("BUF_GET tells user %u of %llu bytes", ex.uid,
				     (unsigned long long)nl_u64(a[NPULINK_A_BUF_LEN]));
		break;
	case NPULINK_GENL_CMD_OP_GET:
		check_op(a);
		break;
	case NPULINK_GENL_CMD_FLIGHT_GET:
		check_flight(a);
		break;
	case NPULINK_GENL_CMD_CONN_GET:
		if (a[NPULINK_A_CONN_IP] || a[NPULINK_A_CONN_VIA])
			see_complain("CONN_GET tells an address of a machine that there is none of");
		break;
	case NPULINK_GENL_CMD_EVENT:
		check_event(a);
		break;
	}
}

/* ---- netlink */

static void hear(struct rnd *r, int sock)
{
	static const uint16_t sizes[] = { 1, 16, 20, 100, 512, 4096, 32768 };
	static const int flags[] = { 0, 0, 0, MSG_PEEK, MSG_TRUNC, MSG_PEEK | MSG_TRUNC };
	static char reply[32768];
	size_t size = sizes[rnd_below(r, ARRAY_SIZE(sizes))];
	ssize_t n;

	n = recv(sock, reply, size, MSG_DONTWAIT | flags[rnd_below(r, ARRAY_SIZE(flags))]);
	if (n > 0)
		see_count(said);
	exec_read(reply, n > (ssize_t)size ? (ssize_t)size : n);
}

/* Attributes of any type, length and depth, up to @room bytes: how many. */
static size_t any_attrs(struct rnd *r, char *p, size_t room, uint32_t depth)
{
	uint32_t n = rnd_below(r, 5);
	size_t len = 0, inner, i;

	while (n-- && room - len >= 64) {
		struct nlattr *a = (void *)(p + len);

		a->nla_type = rnd_below(r, rnd_one_in(r, 8) ? 65536 : 24);
		if (depth && rnd_one_in(r, 3)) {
			a->nla_type |= rnd_one_in(r, 4) ? 0 : NLA_F_NESTED;
			inner = any_attrs(r, p + len + NLA_HDRLEN, room - len - NLA_HDRLEN,
					  depth - 1);
		} else {
			inner = rnd_one_in(r, 2) ? 4 : rnd_below(r, 40);
			for (i = 0; i < inner; i++)
				p[len + NLA_HDRLEN + i] = i ? 0 : rnd_next(r);
		}
		a->nla_len = NLA_HDRLEN + inner;
		if (rnd_one_in(r, 12))
			a->nla_len = rnd_one_in(r, 2) ? rnd_below(r, 6) : rnd_next(r);
		len += NLA_ALIGN(NLA_HDRLEN + inner);
	}
	return len;
}

static size_t any_message(struct rnd *r, char *p, size_t room)
{
	struct nlmsghdr *nlh = (void *)p;
	struct genlmsghdr *genlh = (void *)(p + NLMSG_HDRLEN);
	size_t len = NLMSG_HDRLEN + GENL_HDRLEN;

	*nlh = (struct nlmsghdr) {
		.nlmsg_type = ex.env->family, .nlmsg_flags = NLM_F_REQUEST,
		.nlmsg_seq = rnd_next(r), .nlmsg_pid = rnd_one_in(r, 8) ? rnd_next(r) : 0,
	};
	*genlh = (struct genlmsghdr) {
		.cmd = rnd_below(r, NPULINK_GENL_CMD_MAX + 1), .version = 1,
	};
	if (!rnd_one_in(r, 3))
		nlh->nlmsg_flags |= NLM_F_DUMP;
	if (rnd_one_in(r, 8))
		nlh->nlmsg_flags = rnd_next(r);
	if (rnd_one_in(r, 12))
		nlh->nlmsg_type = rnd_one_in(r, 2) ? rnd_below(r, 64) : rnd_next(r);
	if (!rnd_one_in(r, 3))
		len += any_attrs(r, p + len, room - len, rnd_below(r, 6));
	nlh->nlmsg_len = rnd_one_in(r, 12) ? rnd_below(r, 2 * len) : len;
	return len;
}

/* Several messages at once, and the last one perhaps not whole. */
static void pile(struct rnd *r, int sock)
{
	static char buf[16384];
	uint32_t n = 1 + rnd_below(r, 6);
	size_t len = 0;

	while (n-- && sizeof(buf) - len > 2048)
		len += NLMSG_ALIGN(any_message(r, buf + len, 2048));
	if (rnd_one_in(r, 6))
		len = rnd_below(r, len);
	see_count(sent);
	send(sock, buf, len, MSG_DONTWAIT);
}

/* Messages that go to others than the kernel: in this network namespace, users may send none. */
static void pretend(struct rnd *r, int sock)
{
	struct sockaddr_nl to = { .nl_family = AF_NETLINK, .nl_groups = 1U << rnd_below(r, 32) };
	struct nl_request rq;

	if (ex.env->group - 1 < 32 && rnd_one_in(r, 2))
		to.nl_groups = 1U << (ex.env->group - 1);
	nl_begin(&rq, ex.env->family, NPULINK_GENL_CMD_EVENT, 0);
	nl_put_u32(&rq, NPULINK_A_EVENT_TYPE, NPULINK_EVENT_FAIL);
	if (sendto(sock, &rq, rq.nlh.nlmsg_len, MSG_DONTWAIT, (void *)&to, sizeof(to)) >= 0)
		see_complain("user %u may send to groups %#x", ex.uid, to.nl_groups);
	see_count(refused);
}

static void options(struct rnd *r, int sock)
{
	static const int names[] = {
		NETLINK_ADD_MEMBERSHIP, NETLINK_DROP_MEMBERSHIP, NETLINK_ADD_MEMBERSHIP,
		NETLINK_PKTINFO, NETLINK_BROADCAST_ERROR, NETLINK_NO_ENOBUFS,
		NETLINK_LISTEN_ALL_NSID, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK,
	};
	int name = names[rnd_below(r, ARRAY_SIZE(names))], value = rnd_below(r, 2);

	if (name == NETLINK_ADD_MEMBERSHIP || name == NETLINK_DROP_MEMBERSHIP)
		value = rnd_one_in(r, 4) ? (int)rnd_below(r, 40) : (int)ex.env->group;
	if (rnd_one_in(r, 12))
		value = rnd_odd(r);
	setsockopt(sock, SOL_NETLINK, name, &value, sizeof(value));
	value = rnd_one_in(r, 2) ? 1 : 1 << rnd_below(r, 20);
	if (rnd_one_in(r, 3))
		setsockopt(sock, SOL_SOCKET, rnd_one_in(r, 3) ? SO_SNDBUF : SO_RCVBUF, &value,
			   sizeof(value));
}

/* Something with one of the sockets, which are kept, whatever state they are in. */
static void hold(struct rnd *r)
{
	int *sock = &held[rnd_below(r, HELD)];
	struct nl_request rq;

	if (*sock <= 0) {
		*sock = nl_open();
		if (*sock < 0)
			return;
		see_count(held);
		if (rnd_one_in(r, 2))
			options(r, *sock);
		nl_begin(&rq, ex.env->family, 1 + rnd_below(r, NPULINK_GENL_CMD_MAX), NLM_F_DUMP);
		send(*sock, &rq, rq.nlh.nlmsg_len, MSG_DONTWAIT);
	}
	switch (rnd_below(r, 8)) {
	case 0:
		close(*sock);
		*sock = 0;
		break;
	case 1:
		options(r, *sock);
		break;
	case 2:
		pile(r, *sock);
		break;
	case 3:
		if (ex.prog->as == AS_USER)
			pretend(r, *sock);
		break;
	default:
		hear(r, *sock);
	}
}

/* ---- sysfs */

static char (*found)[256];
static uint32_t nfound, max_found;

static int find(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	if (type == FTW_F && nfound < max_found && strlen(path) < sizeof(*found))
		strcpy(found[nfound++], path);
	return 0;
}

uint32_t see_files(char paths[][256], uint32_t n)
{
	static const char * const places[] = {
		"/sys/module/npulink", "/sys/module/npulink_soft", "/sys/module/npulink_rdma",
		RAW_SOFT, "/sys/devices/virtual/npulink",
	};
	size_t i;

	found = paths;
	nfound = 0;
	max_found = n;
	for (i = 0; i < ARRAY_SIZE(places); i++)
		nftw(places[i], find, 8, FTW_PHYS);
	return nfound;
}

void see_nonsense(struct rnd *r, char *text, size_t size)
{
	static const char * const words[] = {
		"", "\n", "0", "1", "-1", "y", "n", "Y\n", "0x10", "4294967295", "4294967296",
		"18446744073709551615", "99999999999999999999", "npu", "npu99", "add", "remove",
		"auto", "on", "%s%n", " 1", "1 ", "1\n1", "\xff\xfe",
	};

	switch (rnd_below(r, 4)) {
	case 0:
		snprintf(text, size, "%llu", (unsigned long long)rnd_odd(r));
		break;
	case 1:
		memset(text, 'a' + rnd_below(r, 26), size - 1);
		text[rnd_below(r, size - 1)] = 0;
		text[size - 1] = 0;
		break;
	default:
		snprintf(text, size, "%s", words[rnd_below(r, ARRAY_SIZE(words))]);
	}
}

static void read_file(struct rnd *r, const char *path)
{
	char buf[8192];
	struct pollfd p = { .events = rnd_next(r) };
	uint32_t times = 1 + rnd_below(r, 3);
	ssize_t n = 0;

	p.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (p.fd < 0)
		return;
	while (times--) {
		if (rnd_one_in(r, 2))
			n = read(p.fd, buf, rnd_below(r, sizeof(buf)));
		else
			n = pread(p.fd, buf, rnd_below(r, sizeof(buf)), rnd_below(r, 6000));
		if (n > 0)
			see_count(reads);
	}
	if (rnd_one_in(r, 8))
		poll(&p, 1, 0);
	if (rnd_one_in(r, 8))
		ioctl(p.fd, rnd_next(r), buf);
	if (rnd_one_in(r, 8))
		mmap(NULL, 4096, PROT_READ, MAP_SHARED, p.fd, 0);
	if (me != OF_ROOT && n > 0 && strstr(path, "/sections/"))
		see_complain("user %u may read %s", ex.uid, path);
	close(p.fd);
}

/* None of it may succeed. */
static void write_file(struct rnd *r, const char *path)
{
	static const int flags[] = { O_WRONLY, O_RDWR, O_WRONLY | O_TRUNC, O_WRONLY | O_APPEND };
	char text[200];
	int fd, rc = -1;

	switch (rnd_below(r, 6)) {
	case 0:
		rc = chmod(path, 0666);
		break;
	case 1:
		rc = chown(path, ex.uid, -1);
		break;
	case 2:
		rc = truncate(path, 0);
		break;
	case 3:
		rc = unlink(path);
		break;
	default:
		fd = open(path, flags[rnd_below(r, ARRAY_SIZE(flags))] | O_CLOEXEC);
		if (fd < 0)
			break;
		see_nonsense(r, text, sizeof(text));
		rc = write(fd, text, strlen(text));
		close(fd);
		rc = 0;
	}
	see_count(writes);
	if (!rc)
		see_complain("user %u may change %.100s", ex.uid, path);
}

static void sysfs(struct rnd *r)
{
	const char *path = files[rnd_below(r, nfiles)];

	if (!nfiles)
		return;
	if (me != OF_ROOT && rnd_one_in(r, 3))
		write_file(r, path);
	else
		read_file(r, path);
}

/* ---- all of it */

/* Root in namespaces of his own, and nowhere else. */
static void leave(void)
{
	char map[32];

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return;
	snprintf(map, sizeof(map), "0 %u 1", ex.uid);
	raw_write("/proc/self/uid_map", map);
}

void see_all(struct rnd *r, enum owner who, const struct exec_env *env)
{
	static struct exec_env mine;
	static struct prog prog;
	uint32_t times = 100 + rnd_below(r, 200);
	uint64_t until = raw_now() + 20000000000ULL;

	mine = *env;
	mine.told = told;
	me = who;
	prog.as = who == OF_ROOT ? AS_ROOT : rnd_one_in(r, 4) ? AS_NAMESPACE : AS_USER;
	ex.env = &mine;
	ex.prog = &prog;
	ex.uid = getuid();
	ex.root = who == OF_ROOT;
	if (prog.as == AS_NAMESPACE)
		leave();
	nfiles = see_files(files, FILES_MAX);
	/* So that it is a hang if this process does not come to its end. */
	while (times-- && raw_now() < until) {
		uint8_t bend = rnd_one_in(r, 2) ? rnd_next(r) : 0;

		switch (rnd_below(r, 10)) {
		case 0:
		case 1:
		case 2:
			see_count(sent);
			exec_genl(r, bend);
			break;
		case 3:
			exec_events(r, 0);
			break;
		case 4:
			if (rnd_one_in(r, 8))
				exec_policy(r, 0);
			else
				sysfs(r);
			break;
		case 5:
			sysfs(r);
			break;
		default:
			hold(r);
		}
	}
}
