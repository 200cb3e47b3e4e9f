// SPDX-License-Identifier: GPL-2.0
/*
 * print.c - output in text and JSON, and reading numbers from the command line.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/npulink.h"

static void complain(const char *format, va_list args)
{
	fflush(stdout);
	fputs("npulink: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

int fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(format, args);
	va_end(args);
	return EXIT_FAILURE;
}

int usage_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(format, args);
	va_end(args);
	return EXIT_USAGE;
}

/* Prints @obj and drops it. */
void json_print(struct json_object *obj)
{
	int flags = JSON_C_TO_STRING_NOSLASHESCAPE;

	if (opts.pretty)
		flags |= JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED;
	puts(json_object_to_json_string_ext(obj, flags));
	json_object_put(obj);
}

void put_str(struct json_object *obj, const char *key, const char *value)
{
	json_object_object_add(obj, key, value ? json_object_new_string(value) : NULL);
}

void put_u64(struct json_object *obj, const char *key, uint64_t value)
{
	json_object_object_add(obj, key, json_object_new_uint64(value));
}

void put_bool(struct json_object *obj, const char *key, bool value)
{
	json_object_object_add(obj, key, json_object_new_boolean(value));
}

/* 1023, 64.0K, 1.5G: at most 6 characters. */
const char *human_bytes(uint64_t bytes, char buf[16])
{
	static const char units[] = "KMGTPE";
	double value = bytes;
	int unit = -1;

	if (bytes < 1024) {
		snprintf(buf, 16, "%" PRIu64, bytes);
		return buf;
	}
	while (value >= 1023.95 && unit < 5) {
		value /= 1024;
		unit++;
	}
	if (unit < 0) {
		value /= 1024;
		unit = 0;
	}
	snprintf(buf, 16, "%.1f%c", value, units[unit]);
	return buf;
}

bool parse_u64(const char *text, uint64_t max, uint64_t *value)
{
	char *end;

	/* strtoull() takes signs and blanks. */
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 0);
	return !errno && !*end && *value <= max;
}

/* A number with K, M or G behind it (powers of 1024), as nccl-tests takes it. */
bool parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t value;
	char *end;
	int shift;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno)
		return false;
	if (!*end) {
		*bytes = value;
		return true;
	}
	unit = strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end);
	if (!unit)
		return false;
	shift = 10 * (unit - units + 1);
	end++;
	if (*end == 'i')
		end++;
	if (*end == 'B' || *end == 'b')
		end++;
	if (*end || value > UINT64_MAX >> shift)
		return false;
	*bytes = value << shift;
	return true;
}

/* "npu3", "/dev/npulink/npu3" or "3". */
bool parse_dev(const char *text, uint32_t *id)
{
	static const char dir[] = "/dev/npulink/";
	uint64_t value;

	if (!strncmp(text, dir, strlen(dir)))
		text += strlen(dir);
	if (!strncmp(text, "npu", 3))
		text += 3;
	if (!parse_u64(text, ANY_DEV - 1, &value))
		return false;
	*id = value;
	return true;
}

int no_dev(const char *command, const char *text)
{
	return usage_error("%s: \"%s\" is no device: those are called npu0, npu1, ..", command,
			   text);
}

const char *ip_text(const uint8_t ip[16], char buf[48])
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

	if (!memcmp(ip, mapped, sizeof(mapped)))
		inet_ntop(AF_INET, ip + 12, buf, 48);
	else
		inet_ntop(AF_INET6, ip, buf, 48);
	return buf;
}

const char *human_time(double seconds, char buf[16])
{
	if (seconds * 1e3 < 1)
		snprintf(buf, 16, "%.2f us", seconds * 1e6);
	else if (seconds < 1)
		snprintf(buf, 16, "%.2f ms", seconds * 1e3);
	else
		snprintf(buf, 16, "%.2f s", seconds);
	return buf;
}

const char *human_speed(double per_byte, char buf[24])
{
	if (per_byte > 0)
		snprintf(buf, 24, "%.3g GB/s", 1e-9 / per_byte);
	else
		snprintf(buf, 24, "no time");
	return buf;
}

void put_double(struct json_object *obj, const char *key, double value)
{
	json_object_object_add(obj, key, json_object_new_double(value));
}
