// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * rdma_meet.c - ranks of two machines that meet as torchrun's workers do, and by an id
 * that the application hands from one machine to the other.
 *
 * npulink-test: machines=2 mem=768 modules=none timeout=300
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "lib/run/comm.h"
#include "remote.h"

#define PER	2
#define N	(2 * PER)

static int compute(struct coll_comm *comm, unsigned int rank)
{
	long in = rank + 1, out = 0;
	int rc = 0;

	for (int i = 0; i < 20 && !rc; i++) {
		rc = coll_allreduce(comm, &in, &out, 1, COLL_INT64, COLL_SUM);
		if (!rc && out != N * (N + 1) / 2)
			rc = -EILSEQ;
	}
	return remote_check(rc, comm, rank, "allreduce");
}

static int all(int (*rank_main)(unsigned int local))
{
	int status, bad = 0;

	for (unsigned int i = 0; i < PER; i++) {
		if (fork())
			continue;
		remote_alarm();
		_exit(!!rank_main(i));
	}
	while (wait(&status) > 0)
		bad += !!status;
	return bad;
}

/* ---- torchrun */

static void set_number(const char *name, unsigned int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	setenv(name, text, 1);
}

/* All variables that it documents for its workers. */
static int torchrun_worker(unsigned int local)
{
	unsigned int rank = machine * PER + local;
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm_info info = COLL_COMM_INFO_INIT;
	struct coll_comm *comm;
	char text[600], device[8];
	int rc;

	set_number("LOCAL_RANK", local);
	set_number("RANK", rank);
	set_number("GROUP_RANK", machine);
	set_number("ROLE_RANK", rank);
	set_number("LOCAL_WORLD_SIZE", PER);
	set_number("WORLD_SIZE", N);
	set_number("ROLE_WORLD_SIZE", N);
	setenv("MASTER_ADDR", "vm0", 1);
	set_number("MASTER_PORT", 29500);
	set_number("TORCHELASTIC_RESTART_COUNT", 0);
	set_number("TORCHELASTIC_MAX_RESTARTS", 3);
	setenv("TORCHELASTIC_RUN_ID", "test", 1);
	setenv("COLL_KEY", "none", 1);
	config.error_text = text;
	config.error_size = sizeof(text);
	config.deadline_ns = 200000000000ULL;
	/* One after the other at the same port, as an application with several would. */
	for (int i = 0; i < 3; i++) {
		if (coll_comm_init_env(&comm, &config))
			return remote_fail("%s", text);
		coll_comm_info(comm, &info);
		snprintf(device, sizeof(device), "npu%u", local);
		rc = compute(comm, rank);
		if (!rc && strcmp(info.device, device))
			rc = remote_fail("rank %u got %s", rank, info.device);
		if (!rc && !coll_comm_warning(comm))
			rc = remote_fail("rank %u: no warning, and no key", rank);
		if (coll_comm_destroy(comm) || rc)
			return 1;
	}
	return 0;
}

/* The first machine's agent keeps MASTER_PORT for its store. */
static int torchrun(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(29500) };
	int store = socket(AF_INET, SOCK_STREAM, 0), bad;

	if (!machine && (bind(store, (struct sockaddr *)&a, sizeof(a)) || listen(store, 10)))
		return 1;
	bad = all(torchrun_worker);
	close(store);
	return bad;
}

/* ---- an id */

static struct coll_unique_id id;

static int id_worker(unsigned int local)
{
	unsigned int rank = machine * PER + local;
	struct coll_config config = COLL_CONFIG_INIT;
	struct coll_comm *comm;
	char text[600];
	int rc;

	config.error_text = text;
	config.error_size = sizeof(text);
	config.deadline_ns = 200000000000ULL;
	if (coll_comm_init_rank(&comm, N, &id, rank, &config))
		return remote_fail("%s", text);
	rc = compute(comm, rank);
	if (!rc && coll_comm_warning(comm))
		rc = remote_fail("rank %u: %s", rank, coll_comm_warning(comm));
	return coll_comm_destroy(comm) || rc;
}

/* What an application has MPI or a file server for. */
static int hand_on(void)
{
	char path[300], ready[320];
	int fd, rc;

	snprintf(path, sizeof(path), "%s/../meet-id", getenv("NPULINK_RESULTS"));
	snprintf(ready, sizeof(ready), "%s.ready", path);
	if (!machine) {
		rc = coll_get_unique_id_at(&id, "vm0");
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (rc || fd < 0 || write(fd, &id, sizeof(id)) != sizeof(id))
			return 1;
		close(fd);
		return rename(path, ready);
	}
	for (int i = 0; i < 600; i++) {
		fd = open(ready, O_RDONLY);
		if (fd >= 0) {
			rc = read(fd, &id, sizeof(id)) != sizeof(id);
			close(fd);
			unlink(ready);
			return rc;
		}
		usleep(100000);
	}
	return remote_fail("no id came");
}

int main(void)
{
	remote_setup(PER, 20000);
	ksft_print_header();
	ksft_set_plan(4);
	ksft_test_result(!torchrun(), "as torchrun's workers, three times\n");
	ksft_test_result(!hand_on() && !all(id_worker), "by an id\n");
	ksft_test_result(remote_idle(), "no key and no connection is left\n");
	ksft_test_result(remote_teardown(), "the modules can be removed\n");
	ksft_finished();
}
