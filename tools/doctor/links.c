// SPDX-License-Identifier: GPL-2.0
/*
 * links.c - npulink doctor: does each link move data, right and as fast as it should,
 * and are ranks on other machines connected?
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <linux/npulink_genl.h>
#include "doctor/doctor.h"
#include "plan/net.h"
#include "state/calibration.h"
#include "state/link_probe.h"
#include "state/state.h"

#define TOO_SLOW	4	/* times what is calibrated: less may be other load */

/* At the rate that npulink tune has measured, if it has? */
static void check_rate(const struct link_result *slowest, size_t n)
{
	char measured[24], expected[24];
	struct calibration cal;
	struct finding *f;

	calibration_get(&cal);
	human_speed(slowest->beta, measured);
	human_speed(cal.beta, expected);
	if (*cal.bad) {
		f = found(ERROR, "links", "%zu moved data right, but no program will use them: %s",
			  n, cal.bad);
		fix(f, "mend that file, or remove it; npulink tune writes a new one");
	} else if (!cal.file) {
		found(OK, "links", "%zu moved data right; the slowest, npu%u -> npu%u, %s (what to expect is not known until npulink tune has measured it)",
		      n, slowest->from, slowest->to, measured);
	} else if (slowest->beta <= TOO_SLOW * cal.beta) {
		found(OK, "links", "%zu moved data right; the slowest, npu%u -> npu%u, %s, %s was expected",
		      n, slowest->from, slowest->to, measured, expected);
	} else {
		f = found(WARNING, "links", "npu%u -> npu%u moves %s, %s was expected",
			  slowest->from, slowest->to, measured, expected);
		fix(f, "does something else use the machine? See: npulink top; npulink link test; "
		    "if %s is out of date: npulink tune", cal.file);
	}
}

void check_links(void)
{
	struct link_result *results, *slowest = NULL;
	size_t n, bad = 0;
	struct finding *f;
	int rc = link_test(ANY_DEV, &results, &n);

	if (rc) {
		f = found(WARNING, "links", "cannot be tested: %s", strerror(-rc));
		if (rc == -ENOMEM)
			fix(f, "see memlock below: that needs some memory that is pinned");
		free(results);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct link_result *r = &results[i];

		if (r->error) {
			f = found(ERROR, "links", "npu%u -> npu%u: %s", r->from, r->to, r->text);
			fix(f, "npulink link show; dmesg | grep npulink");
		} else if (r->wrong) {
			f = found(ERROR, "links", "npu%u -> npu%u: %llu bytes arrived wrong",
				  r->from, r->to, (unsigned long long)r->wrong);
			fix(f, "do not trust this device; COLL_CHECKSUM=1 finds such errors");
		} else if (!slowest || r->beta > slowest->beta) {
			slowest = r;
		}
		bad += r->error || r->wrong;
	}
	if (!n)
		found(UNTESTED, "links", "there are no two devices that you may open");
	else if (!bad)
		check_rate(slowest, n);
	free(results);
}

/* Connections that communicators have to other machines now. */
void check_peers(void)
{
	struct state_conn *conns = NULL;
	size_t n = 0, up = 0, remote = 0;
	struct finding *f;
	char ip[48];
	int rc;

	rc = state_conns(ANY_DEV, &conns, &n);
	if (rc) {
		found(UNTESTED, "peers", "netlink does not tell of them: %s", strerror(-rc));
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const struct state_conn *c = &conns[i];

		if (!c->remote || !c->state)
			continue;
		remote++;
		up += c->state == NPULINK_CONN_STATE_UP || c->state == NPULINK_CONN_STATE_LEFT;
		if (c->state == NPULINK_CONN_STATE_UP || c->state == NPULINK_CONN_STATE_LEFT)
			continue;
		f = found(WARNING, "peers", "rank %u of communicator %u at %s is not reached from rank %u on npu%u: %s",
			  c->peer, c->comm, ip_text(c->ip, ip), c->rank, c->dev,
			  c->state == NPULINK_CONN_STATE_DOWN ? "the connection is down" :
			  c->state == NPULINK_CONN_STATE_RESUMING ?
			  "the connection was lost and goes on over another port" :
			  "there is no connection yet");
		fix(f, "there: npulink doctor; npulink link ports. Between: ping, rping; dmesg | grep npulink");
	}
	if (!remote)
		found(UNTESTED, "peers", "no ranks on other machines are in use");
	else if (up == remote)
		found(OK, "peers", "%zu connections to ranks on other machines, all up", remote);
	free(conns);
}
