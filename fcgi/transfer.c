/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fcgi/cond.h"
#include "fcgi/disposition.h"
#include "fcgi/exchange.h"
#include "fcgi/response.h"

#define TYPE "application/octet-stream"
#define RETRY_SEC 1

/* What socket buffers take at once: no thread waits for that. */
#define SMALL (64u * 1024)

#define ETAG_BYTES 16u
#define ETAG_SIZE (sizeof("W/\"\"") + 2 * ETAG_BYTES)

/* The kernel's clock for files stands still for up to 10 ms: what was changed
 * within this time may change again without a trace. */
#define FRESH_NS INT64_C(100000000)
#define NS INT64_C(1000000000)

struct file {
	int fd;
	uint64_t size;
	char etag[ETAG_SIZE];
	char modified[HTTP_DATE_SIZE];
	struct validators validators;
	struct range range;
	enum range_kind kind;
};

static unsigned most(const struct exchange *x)
{
	unsigned n = x->app->config->threads / 4;

	return n > 0 ? n : 1;
}

int transfer_begin(struct exchange *x, struct err *e)
{
	atomic_uint *count = &x->app->transfers.count;

	if (atomic_fetch_add(count, 1) < most(x))
		return 0;
	atomic_fetch_sub(count, 1);
	x->retry_after_s = RETRY_SEC;
	return err_set(
	    e, ERR_CAPACITY, EAGAIN, "too many downloads at the same time");
}

void transfer_end(struct exchange *x)
{
	atomic_fetch_sub(&x->app->transfers.count, 1);
}

/* Good until the year 2262; a program may set any year, that one only once. */
static int64_t to_ns(const struct timespec *t)
{
	if (t->tv_sec >= INT64_MAX / NS || t->tv_sec <= INT64_MIN / NS)
		return 0;
	return t->tv_sec * NS + t->tv_nsec;
}

/* A program may set the time of its file's last change, but not the one of its
 * inode's: together with the size they change whenever the bytes do. */
static void put_etag(struct file *f, const struct stat *st, bool fresh)
{
	const int64_t parts[] = {(int64_t)st->st_ino, (int64_t)st->st_size,
	    to_ns(&st->st_mtim), to_ns(&st->st_ctim)};
	uint8_t hash[ETAG_BYTES];
	char hex[2 * ETAG_BYTES + 1];

	(void)crypto_generichash(hash, sizeof(hash),
	    (const unsigned char *)parts, sizeof(parts), NULL, 0);
	(void)sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
	(void)snprintf(
	    f->etag, sizeof(f->etag), "%s\"%s\"", fresh ? "W/" : "", hex);
}

static int look(struct file *f, struct err *e)
{
	struct timespec now = {0};
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return err_sys(e, errno, "fstat");
	if (!S_ISREG(st.st_mode)) /* the runner has looked: never */
		return err_set(e, ERR_SANDBOX_FAILED, EINVAL,
		    "isobox-runner passed what is no file");
	(void)clock_gettime(CLOCK_REALTIME, &now);
	f->size = (uint64_t)st.st_size;
	put_etag(f, &st, to_ns(&now) - to_ns(&st.st_ctim) < FRESH_NS);
	f->validators = (struct validators){
	    .etag = f->etag, .modified = st.st_mtim.tv_sec, .now = now.tv_sec};
	/* Section 8.8.2.1 of RFC 9110: no date of the future. */
	if (f->validators.modified > now.tv_sec)
		f->validators.modified = now.tv_sec;
	http_date(f->validators.modified, f->modified);
	return 0;
}

static void put_validators(const struct file *f, struct buf *more)
{
	buf_printf(more, "ETag: %s\r\nAccept-Ranges: bytes\r\n", f->etag);
	if (f->modified[0] != '\0')
		buf_printf(more, "Last-Modified: %s\r\n", f->modified);
}

static void send_bytes(struct exchange *x, const struct file *f)
{
	size_t sent =
	    out_send_file(x->out, f->fd, f->range.first, f->range.len);

	metrics_count(&x->app->metrics, METRIC_FILE_BYTES_OUT, sent);
}

static int send_part(
    struct exchange *x, const struct file *f, const char *more, struct err *e)
{
	int status = f->kind == RANGE_PART ? 206 : 200;
	bool wanted = x->req.method != METHOD_HEAD;
	bool large = wanted && f->range.len > SMALL;
	int r = large ? transfer_begin(x, e) : 0;

	if (r < 0)
		return r;
	if (response_begin(x, status, TYPE, more, (long long)f->range.len) ==
		0 &&
	    wanted)
		send_bytes(x, f);
	if (large)
		transfer_end(x);
	return 0;
}

static void refuse_range(struct exchange *x, const struct file *f)
{
	char more[64];
	struct err e;

	(void)snprintf(more, sizeof(more),
	    "Content-Range: bytes */%" PRIu64 "\r\n", f->size);
	(void)err_set(&e, ERR_RANGE_NOT_SATISFIABLE, ERANGE,
	    "the file has %" PRIu64 " bytes", f->size);
	response_error_with(x, &e, more);
}

int transfer_file(struct exchange *x, int fd, const char *name, size_t name_len,
    struct err *e)
{
	cleanup_buf struct buf more = {0};
	struct file f = {.fd = fd};
	enum cond cond;
	int r = look(&f, e);

	if (r < 0)
		return r;
	cond = cond_check(&x->req, &f.validators);
	if (cond == COND_FAILED)
		return err_set(e, ERR_PRECONDITION_FAILED, EAGAIN, "%s", "");
	x->revalidate = true;
	put_validators(&f, &more);
	if (cond == COND_NOT_MODIFIED) {
		buf_putc(&more, '\0');
		response_empty(x, 304, (const char *)more.data);
		return 0;
	}
	f.kind = cond_range(&x->req, &f.validators, f.size, &f.range);
	if (f.kind == RANGE_NONE) {
		refuse_range(x, &f);
		return 0;
	}
	if (f.kind == RANGE_PART)
		buf_printf(&more,
		    "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64
		    "\r\n",
		    f.range.first, f.range.first + f.range.len - 1, f.size);
	disposition_put(&more, name, name_len, "");
	buf_putc(&more, '\0');
	if (more.failed)
		return err_sys(e, ENOMEM, "an answer");
	return send_part(x, &f, (const char *)more.data, e);
}
