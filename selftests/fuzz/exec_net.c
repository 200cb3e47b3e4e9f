// SPDX-License-Identifier: GPL-2.0
/*
 * exec_net.c - calls of a program on the generic netlink family: each command with what it
 * takes (abi_genl.c), and, spoiled, with whatever else there is.
 *
 * An ordinary user may ask everything, but must be refused what is for administrators,
 * and never be told of what belongs to others: that is checked in every answer.
 */
#include "abi_genl.h"
#include "exec.h"
#include "nl.h"
#include "raw.h"

#define REQUEST		1536

struct request {
	struct nlmsghdr nlh;
	struct genlmsghdr genlh;
	char attrs[REQUEST];
};

/* ---- requests */

/* Its place, or NULL if there is no room. */
static struct nlattr *put(struct request *rq, int type, const void *data, size_t len)
{
	size_t at = NLMSG_ALIGN(rq->nlh.nlmsg_len);
	struct nlattr *attr = (void *)((char *)rq + at);

	if (at + NLA_HDRLEN + NLA_ALIGN(len) > sizeof(*rq))
		return NULL;
	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + len;
	if (len)
		memcpy((char *)attr + NLA_HDRLEN, data, len);
	rq->nlh.nlmsg_len = at + NLA_HDRLEN + NLA_ALIGN(len);
	return attr;
}

static uint32_t seen_id(struct rnd *r, const uint32_t *ids, uint32_t n)
{
	if (!n || rnd_one_in(r, 6))
		return rnd_one_in(r, 2) ? rnd_below(r, 100) : rnd_odd(r);
	return ids[rnd_below(r, n < IDS ? n : IDS)];
}

/* An attribute of a request, as it should be. */
static void put_sensible(struct rnd *r, struct request *rq, int type, enum genl_value value)
{
	static const char * const kinds[] = { "rdma", "rdma", "rdma", "soft", "fuzz" };
	static const char * const names[] = { "rxe0/1", "rxe9/2", "/", "npu0", "" };
	uint32_t number = 0;
	const char *text;

	switch (value) {
	case VALUE_DEV:
		number = rnd_one_in(r, 8) ? rnd_odd(r) : rnd_below(r, ex.env->ndev);
		break;
	case VALUE_COMM:
		number = seen_id(r, ex.comm_ids, ex.ncomm_ids);
		break;
	case VALUE_FILE:
		number = seen_id(r, ex.file_ids, ex.nfile_ids);
		break;
	case VALUE_FLIGHT:
		number = rnd_below(r, NPULINK_FLIGHT_ALL + 1);
		break;
	case VALUE_PORT_KIND:
		text = kinds[rnd_below(r, ARRAY_SIZE(kinds))];
		put(rq, type, text, strlen(text) + 1);
		return;
	case VALUE_PORT_NAME:
		text = rnd_one_in(r, 4) ? names[rnd_below(r, ARRAY_SIZE(names))] : ex.env->port;
		put(rq, type, text, strlen(text) + 1);
		return;
	default:
		return;
	}
	put(rq, type, &number, sizeof(number));
}

/* An attribute of that kind, with any value. */
static void put_any(struct rnd *r, struct request *rq, int type, uint8_t kind, int depth)
{
	uint64_t value = rnd_odd(r);
	char text[300];
	size_t len;

	if (kind >= KIND_NEST) {
		const struct genl_attrs *set = &genl_sets[kind - KIND_NEST];
		uint32_t n = rnd_below(r, 5), i;
		struct nlattr *nest;

		if (!rnd_one_in(r, 4))
			type |= NLA_F_NESTED;
		nest = put(rq, type, NULL, 0);

		for (i = 0; nest && set->n && depth < 8 && i < n; i++) {
			uint32_t one = rnd_below(r, set->n);

			put_any(r, rq, one, set->kinds[one], depth + 1);
		}
		if (nest)
			nest->nla_len = (char *)rq + rq->nlh.nlmsg_len - (char *)nest;
		return;
	}
	switch (kind) {
	case KIND_U16:
		put(rq, type, &value, 2);
		break;
	case KIND_U32:
		put(rq, type, &value, 4);
		break;
	case KIND_U64:
		put(rq, type, &value, 8);
		break;
	case KIND_STRING:
		/* Empty, without its end, too long for whatever it is. */
		len = rnd_one_in(r, 3) ? rnd_below(r, sizeof(text)) : rnd_below(r, 40);
		memset(text, rnd_one_in(r, 4) ? '%' : 'a' + rnd_below(r, 26), sizeof(text));
		if (len && rnd_one_in(r, 2))
			text[len - 1] = 0;
		put(rq, type, text, len);
		break;
	case KIND_BINARY:
		memset(text, rnd_next(r), sizeof(text));
		put(rq, type, text, rnd_one_in(r, 2) ? 16 : rnd_below(r, sizeof(text)));
		break;
	default:
		put(rq, type, NULL, 0);
	}
}

static void spoil(struct rnd *r, struct request *rq, const struct genl_command *c)
{
	const struct genl_attrs *set = &genl_sets[c->set];
	uint32_t any = rnd_below(r, set->n), len = rq->nlh.nlmsg_len;

	switch (rnd_below(r, 10)) {
	case 0:		/* what it does not take, or a second time */
	case 1:
		put_any(r, rq, any, set->kinds[any], 0);
		break;
	case 2:		/* another kind than it should be */
		put_any(r, rq, c->takes[0].attr, 1 + rnd_below(r, KIND_NEST + SETS - 1), 0);
		break;
	case 3:
		put_any(r, rq, rnd_below(r, 70), 1 + rnd_below(r, KIND_NEST + SETS - 1), 0);
		break;
	case 4:		/* nothing at all */
		rq->nlh.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN;
		break;
	case 5:
		rq->genlh.cmd = rnd_below(r, rnd_one_in(r, 2) ? NPULINK_GENL_CMD_MAX + 2 : 256);
		break;
	case 6:		/* a dump of what has none, and the like */
		rq->nlh.nlmsg_flags ^= rnd_one_in(r, 2) ? NLM_F_DUMP : 1U << rnd_below(r, 16);
		break;
	case 7:
		rq->nlh.nlmsg_len = rnd_below(r, len + 8);
		break;
	case 8:
		rq->genlh.version = rnd_below(r, 3);
		rq->genlh.reserved = rnd_one_in(r, 2) ? 0 : rnd_odd(r);
		break;
	default:
		gen_bend_bytes(r, rq, len);
	}
	if (rq->nlh.nlmsg_len > sizeof(*rq))
		rq->nlh.nlmsg_len = sizeof(*rq);
}

/* ---- answers */

static void learn(uint32_t *ids, uint32_t *n, const struct nlattr *attr)
{
	ids[__atomic_fetch_add(n, 1, __ATOMIC_RELAXED) % IDS] = nl_u32((struct nlattr *)attr);
}

static void read_object(const struct genl_command *c, struct nlmsghdr *nlh)
{
	struct nlattr *attrs[NL_ATTRS];

	nl_parse((char *)nlh + NLMSG_HDRLEN + GENL_HDRLEN,
		 nlh->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN, attrs);
	if (c->comm && attrs[c->comm])
		learn(ex.comm_ids, &ex.ncomm_ids, attrs[c->comm]);
	if (c->file && attrs[c->file])
		learn(ex.file_ids, &ex.nfile_ids, attrs[c->file]);
	if (ex.env->told)
		ex.env->told(c - genl_commands, attrs);
	else if (ex.prog->as == AS_USER && c->uid && attrs[c->uid] &&
		 nl_u32(attrs[c->uid]) != ex.uid)
		exec_complain("%s shows user %u what is of user %u", c->name, ex.uid,
			      nl_u32(attrs[c->uid]));
}

/* Objects in what was read. */
void exec_read(char *reply, ssize_t n)
{
	struct nlmsghdr *nlh = (void *)reply;

	for (; n > 0 && NLMSG_OK(nlh, n); nlh = NLMSG_NEXT(nlh, n)) {
		uint8_t cmd = ((struct genlmsghdr *)NLMSG_DATA(nlh))->cmd;

		if (nlh->nlmsg_type == ex.env->family && cmd <= NPULINK_GENL_CMD_MAX &&
		    nlh->nlmsg_len >= NLMSG_HDRLEN + GENL_HDRLEN)
			read_object(&genl_commands[cmd], nlh);
	}
}

/*
 * Read some of what has come, with a buffer of @size: what the answer to @seq says, or 1 if
 * not all was read. Dumps take several messages, and may be left in the middle.
 */
static int read_answer(int sock, int family, uint32_t seq, size_t size, uint32_t times)
{
	char reply[16384];
	ssize_t n;

	while (times--) {
		struct nlmsghdr *nlh = (void *)reply;

		n = recv(sock, reply, size, MSG_DONTWAIT);
		for (; n > 0 && NLMSG_OK(nlh, n); nlh = NLMSG_NEXT(nlh, n)) {
			uint8_t cmd = ((struct genlmsghdr *)NLMSG_DATA(nlh))->cmd;

			if (nlh->nlmsg_type == NLMSG_ERROR || nlh->nlmsg_type == NLMSG_DONE) {
				if (nlh->nlmsg_seq == seq)
					return *(int *)NLMSG_DATA(nlh);
				continue;
			}
			if (nlh->nlmsg_type == family && cmd <= NPULINK_GENL_CMD_MAX &&
			    nlh->nlmsg_len >= NLMSG_HDRLEN + GENL_HDRLEN)
				read_object(&genl_commands[cmd], nlh);
		}
	}
	return 1;
}

/* ---- calls */

static void request(struct rnd *r, int sock, uint32_t seq, uint8_t bend)
{
	static const uint16_t sizes[] = { 512, 512, 4096, 16384 };
	uint8_t cmd = 1 + rnd_below(r, NPULINK_GENL_CMD_MAX);
	const struct genl_command *c = &genl_commands[cmd];
	bool dump = c->dump && (!c->one || rnd_one_in(r, 2));
	struct request rq = {
		.nlh = {
			.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN, .nlmsg_type = ex.env->family,
			.nlmsg_flags = NLM_F_REQUEST | (dump ? NLM_F_DUMP : NLM_F_ACK),
			.nlmsg_seq = seq,
		},
		.genlh = { .cmd = cmd, .version = 1 },
	};
	uint32_t i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(c->takes) && c->takes[i].attr; i++)
		if (!dump || rnd_one_in(r, 2))
			put_sensible(r, &rq, c->takes[i].attr, c->takes[i].value);
	for (i = 0; i < bend; i++)
		spoil(r, &rq, c);
	if (send(sock, &rq, rq.nlh.nlmsg_len, 0) < 0)
		return;
	rc = read_answer(sock, ex.env->family, seq, sizes[rnd_below(r, ARRAY_SIZE(sizes))],
			 1 + rnd_below(r, rnd_one_in(r, 2) ? 4 : 100));
	if (bend || rc > 0)
		return;
	ex.env->shared->genl[cmd][ex.prog->as != AS_ROOT][!!rc]++;
	/* Whatever it asks for: that is looked at before. */
	if (c->admin && rc != -EPERM && !ex.root && ex.env->root)
		exec_complain("%s says %d to an ordinary user", c->name, rc);
}

/* Several, also while the one before is still being answered: a socket has room for one. */
void exec_genl(struct rnd *r, uint8_t bend)
{
	uint32_t n = 1 + rnd_below(r, 4), i;
	int sock = nl_open();

	for (i = 0; sock >= 0 && i < n; i++) {
		request(r, sock, i, bend % 4);
		if (rnd_one_in(r, 2)) {
			close(sock);
			sock = nl_open();
		}
	}
	if (sock >= 0)
		close(sock);
}

/* What policies the family has, as the kernel tells by itself. */
void exec_policy(struct rnd *r, uint8_t bend)
{
	uint16_t family = ex.env->family;
	int sock = nl_open();
	struct request rq = {
		.nlh = {
			.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN, .nlmsg_type = GENL_ID_CTRL,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		},
		.genlh = { .cmd = CTRL_CMD_GETPOLICY, .version = 2 },
	};
	uint32_t cmd = rnd_below(r, NPULINK_GENL_CMD_MAX + 2);

	if (sock < 0)
		return;
	put(&rq, CTRL_ATTR_FAMILY_ID, &family, sizeof(family));
	if (rnd_one_in(r, 2))
		put(&rq, CTRL_ATTR_OP, &cmd, sizeof(cmd));
	if (send(sock, &rq, rq.nlh.nlmsg_len, 0) > 0)
		read_answer(sock, -1, 0, 4096, 50);
	close(sock);
}

/* Listen to events, with little room for them, and sometimes look what came. */
void exec_events(struct rnd *r, uint8_t bend)
{
	uint32_t group = ex.env->group;
	int size = 1;

	if (ex.events <= 0) {
		ex.events = nl_open();
		if (rnd_one_in(r, 2))
			setsockopt(ex.events, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		setsockopt(ex.events, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group));
	} else if (rnd_one_in(r, 4)) {
		close(ex.events);
		ex.events = -1;
	} else {
		read_answer(ex.events, ex.env->family, 0, 4096, 20);
	}
}
