/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * tcp.h - what the files of the exchange over sockets share.
 *
 * Ranks form a tree with rank 0 at its root. On each machine, the first to come is the
 * entry for the others, which find it by an abstract Unix socket; only the entries
 * go to rank 0's port. Rank 0 and each entry give whoever comes a place in a tree of
 * COLL_FANOUT children by the order of arrival, so nobody keeps more connections than
 * that, twice, and one to its parent.
 *
 *	frame.c	bytes, frames, authentication
 *	addr.c	addresses, listening, connecting
 *	enter.c	to find one's place
 *	serve.c	to give others theirs, until all are there
 *	tcp.c		the exchange
 */
#ifndef COLL_BOOTSTRAP_TCP_H
#define COLL_BOOTSTRAP_TCP_H

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include "bootstrap/bootstrap.h"

#define COLL_FANOUT	8U
#define COLL_MAC_LEN	32
#define COLL_PROTOCOL	4
#define COLL_LEFT_MS	1000000		/* more is never said to be left */

/* ---- frames: this, a body, and a MAC that is zero without a key, in HELLO and in REFUSED */

enum coll_frame_type {
	FRAME_HELLO,		/* greeting, of who was connected to */
	FRAME_JOIN,		/* greeting, of who has connected */
	FRAME_WELCOME,		/* all are there; status: whether a network is open to them */
	FRAME_DATA,
	FRAME_ERROR,		/* status and text: down, for all; up, for rank 0 to tell all */
	FRAME_PLACE,		/* place: where to stay */
	FRAME_PLACED,		/* it is there; status: it could not, and wants to stay here */
	FRAME_MEMBER,		/* member: up, who has been placed */
	FRAME_REFUSED,		/* to a JOIN with another key; anybody can say so */
};

struct coll_frame {
	uint32_t magic;
	uint32_t type;
	int32_t status;
	uint32_t len;
};

/* Of HELLO and JOIN. Its form holds for all versions, so that they can be told apart. */
struct coll_greeting {
	uint32_t protocol;
	uint32_t version;
	uint16_t keyed;
	uint16_t job;
	uint32_t nranks;
	uint32_t rank;
	uint32_t extra;		/* HELLO: ms that are left; JOIN: port or name it listens at */
	uint8_t nonce[16];
};

/* Of PLACE: the parent. Length 0: who says it. */
struct coll_place {
	uint32_t rank;
	uint32_t len;
	struct sockaddr_storage addr;
};

/* Of MEMBER. */
struct coll_member {
	uint32_t rank;
	char from[64];
};

/* Of what is received by and by. */
#define COLL_FRAME_MAX	(sizeof(struct coll_frame) + COLL_TEXT + COLL_MAC_LEN)

/**
 * struct coll_conn - a connection
 * @fd: socket, -1: none
 * @up: the other end is nearer to rank 0
 * @rank: at the other end, once it has said so
 * @sent: frames, so that none can be replayed
 * @received: frames
 * @since_ns: when it came
 * @have: bytes of @in
 * @in: the part of a frame that has come
 * @nonce: our part of @key
 * @key: of this connection's MACs
 * @door: by which it came
 * @seat: of its parent, while it is on its way there ..
 * @own_seat: .. and its own
 * @again: that is the second one
 * @from: who that is, for texts
 */
struct coll_conn {
	int fd;
	bool up, again;
	uint32_t rank;
	uint32_t sent, received;
	uint64_t since_ns;
	size_t have;
	uint8_t in[COLL_FRAME_MAX];
	uint8_t nonce[16];
	uint8_t key[32];
	struct coll_door *door;
	uint32_t seat, own_seat;
	char from[64];
};

struct coll_conns {
	struct coll_conn **at;
	uint32_t n, max;
};

/**
 * struct coll_seat - a place in the tree, given by an entry
 * @place: where who has it listens
 * @children: sent there
 * @reached: by one of them
 * @shut: one of them did not get through: something in between filters
 */
struct coll_seat {
	struct coll_place place;
	uint32_t children;
	bool reached, shut;
};

/**
 * struct coll_door - where others come in
 * @fd: socket that listens, -1: none
 * @local: by a Unix socket
 * @entry: whoever comes has no place yet; else it was sent here
 * @seats: given by an entry, by number; 0 is its own
 * @nseats: how many
 * @next: none before it takes another child
 */
struct coll_door {
	int fd;
	bool local, entry;
	struct coll_seat *seats;
	uint32_t nseats, next;
};

/**
 * struct coll_tcp - the exchange
 * @doors: Unix, TCP
 * @parent: way to rank 0
 * @children: those who come to this rank
 * @strangers: who has not said who it is, the oldest first ..
 * @max_strangers: .. and how many of them there may be
 * @entering: who is on its way to its place
 * @polls: for poll()
 * @rest_ns: nobody is let in until then
 * @here: of rank 0: who has a place
 * @from: of rank 0: where those are
 * @missing: of rank 0: how many have none
 * @other_keys: of rank 0: how often another key was tried
 * @other_key_from: the last
 * @hung_up: of rank 0: how many did before they had said who they are
 * @elsewhere: of rank 0: the address that was given is not this machine's
 * @told: how many came too late and got to know of the failure
 * @failed: what to tell whoever comes, with the text
 * @welcome: all are there
 */
struct coll_tcp {
	struct coll_door doors[2];
	struct coll_conn parent;
	struct coll_conns children, strangers, entering;
	uint32_t max_strangers;
	struct pollfd *polls;
	uint64_t rest_ns;
	bool *here;
	char (*from)[64];
	uint32_t missing;
	unsigned int other_keys;
	char other_key_from[64];
	unsigned int hung_up;
	bool elsewhere;
	uint32_t told;
	int failed;
	bool welcome;
};

/* To the caller, whoever hangs up has died, and who says something else is not libcoll. */
static inline int coll_conn_error(int rc)
{
	if (rc == -EBADMSG)
		return -EPROTO;
	return rc == -ECONNRESET || rc == -EPIPE ? -EOWNERDEAD : rc;
}

#define DOOR_LOCAL	0
#define DOOR_NET	1

/* ---- frame.c */

int coll_remaining_ms(const struct coll_bootstrap *b);
int coll_wait_for(const struct coll_bootstrap *b, int fd, short events);
void coll_session_key(const struct coll_bootstrap *b, struct coll_conn *c,
		      const uint8_t server[16], const uint8_t client[16]);
int coll_join_hear(const struct coll_bootstrap *b, struct coll_conn *c, struct coll_greeting *g);
int coll_frame_send(const struct coll_bootstrap *b, struct coll_conn *c,
		    enum coll_frame_type type, int status, const void *body, size_t len);
int coll_frame_get(struct coll_bootstrap *b, struct coll_conn *c, struct coll_frame *f,
		   void *body, size_t max);
int coll_frame_hear(const struct coll_bootstrap *b, struct coll_conn *c, struct coll_frame *f,
		    void *body);
int coll_frame_recv(struct coll_bootstrap *b, struct coll_conn *c, enum coll_frame_type type,
		    void *body, size_t len, int *status);
void coll_conn_close(struct coll_conn *c);
int coll_no_files(struct coll_bootstrap *b);

/* ---- addr.c */

bool coll_is_loopback(const struct sockaddr_storage *addr);
void coll_name_of(const struct sockaddr_storage *addr, socklen_t len, char *name, size_t size);
int coll_listen_root(struct coll_bootstrap *b, struct coll_door *door);
int coll_listen_beside(int fd, struct coll_door *door, uint32_t *port);
int coll_listen_machine(const struct coll_bootstrap *b, struct coll_door *door);
int coll_listen_unnamed(struct coll_door *door, uint32_t *name);
int coll_connect_root(struct coll_bootstrap *b);
int coll_connect_machine(const struct coll_bootstrap *b);
int coll_connect_place(const struct coll_bootstrap *b, const struct coll_place *place);
bool coll_address_of(int fd, bool local, uint32_t extra, struct coll_place *place);
bool coll_is_same_user(int fd, char *name, size_t size);

/* ---- enter.c, serve.c */

int coll_enter(struct coll_bootstrap *b);
int coll_port_taken(struct coll_bootstrap *b);
uint32_t coll_most_strangers(void);
void coll_conns_close(struct coll_conns *list);
int coll_serve(struct coll_bootstrap *b);
int coll_hear_member(struct coll_bootstrap *b, const struct coll_frame *f, const void *body);
void coll_door_close(struct coll_door *door);
int coll_give_up(struct coll_bootstrap *b, int rc);
int coll_parent_failed(struct coll_bootstrap *b, const struct coll_conn *c, int rc, int status);

#endif /* COLL_BOOTSTRAP_TCP_H */
