/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/dns.h"

#include <errno.h>
#include <string.h>

#define HEADER 12u
#define TYPE_CNAME 5u
#define TYPE_OPT 41u

#define FLAG_RESPONSE 0x8000u
#define FLAG_TRUNCATED 0x0200u
#define FLAG_RECURSION 0x0100u
#define FLAG_AVAILABLE 0x0080u
#define OPCODE 0x7800u
#define RCODE 0x000fu

#define LABEL_POINTER 0xc0u

/* A compressed name may point so often; more is a loop. */
#define POINTERS_MAX 32u

/* Aliases of aliases. */
#define ALIASES_MAX 16u

#define RECORDS_MAX 256u

struct view {
	const uint8_t *msg;
	size_t len;
	size_t at;
};

static bool take_u16(struct view *v, uint16_t *ret)
{
	if (v->len - v->at < 2)
		return false;
	*ret = (uint16_t)(v->msg[v->at] << 8 | v->msg[v->at + 1]);
	v->at += 2;
	return true;
}

static bool take_u32(struct view *v, uint32_t *ret)
{
	uint16_t high, low;

	if (!take_u16(v, &high) || !take_u16(v, &low))
		return false;
	*ret = (uint32_t)high << 16 | low;
	return true;
}

static char lower(uint8_t c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

struct name {
	char text[HOSTNAME_MAX + 1];
	size_t len;
};

/* One label at `at` of length n, with a dot before all but the first. A dot or a
 * NUL inside a label would make another name of it. */
static bool add_label(
    const struct view *v, size_t at, size_t n, struct name *ret)
{
	if (v->len - at < n || ret->len + 1 + n > HOSTNAME_MAX)
		return false;
	if (ret->len > 0)
		ret->text[ret->len++] = '.';
	for (size_t i = 0; i < n; i++) {
		uint8_t c = v->msg[at + i];

		if (c == '.' || c == '\0')
			return false;
		ret->text[ret->len++] = lower(c);
	}
	return true;
}

/* The name at v->at, which then stands behind it. */
static bool take_name(struct view *v, bool may_point, struct name *ret)
{
	size_t at = v->at;
	unsigned pointers = 0;

	ret->len = 0;
	while (at < v->len) {
		uint8_t n = v->msg[at++];

		if (n == 0) {
			if (pointers == 0)
				v->at = at;
			ret->text[ret->len] = '\0';
			return true;
		}
		if ((n & LABEL_POINTER) == LABEL_POINTER) {
			if (!may_point || at == v->len ||
			    pointers == POINTERS_MAX)
				return false;
			if (pointers++ == 0)
				v->at = at + 1;
			at = (size_t)(n & ~LABEL_POINTER) << 8 | v->msg[at];
			continue;
		}
		if ((n & LABEL_POINTER) != 0 || !add_label(v, at, n, ret))
			return false;
		at += n;
	}
	return false;
}

struct header {
	uint16_t id, flags, questions, answers, authorities, more;
};

static bool take_header(struct view *v, struct header *h)
{
	return take_u16(v, &h->id) && take_u16(v, &h->flags) &&
	       take_u16(v, &h->questions) && take_u16(v, &h->answers) &&
	       take_u16(v, &h->authorities) && take_u16(v, &h->more);
}

static bool take_question(
    struct view *v, struct name *name, uint16_t *type, uint16_t *class)
{
	return take_name(v, false, name) && take_u16(v, type) &&
	       take_u16(v, class);
}

static int answer_with(enum dns_rcode rcode, enum dns_rcode *ret_rcode)
{
	*ret_rcode = rcode;
	return -EINVAL;
}

int dns_read_query(const uint8_t *msg, size_t len, struct dns_question *ret,
    enum dns_rcode *ret_rcode)
{
	struct view v = {msg, len, 0};
	struct header h;
	struct name name;

	if (!take_header(&v, &h) || (h.flags & FLAG_RESPONSE) != 0)
		return -EPROTO;
	*ret = (struct dns_question){
	    .id = h.id, .recursion = (h.flags & FLAG_RECURSION) != 0};
	if ((h.flags & OPCODE) != 0)
		return answer_with(DNS_NOTIMP, ret_rcode);
	if (h.questions != 1 || h.answers != 0 || h.authorities != 0 ||
	    !take_question(&v, &name, &ret->type, &ret->class))
		return answer_with(DNS_FORMERR, ret_rcode);
	memcpy(ret->name, name.text, name.len + 1);
	ret->name_len = name.len;
	ret->wire_len = v.at - HEADER; /* no longer than the name allows */
	memcpy(ret->wire, msg + HEADER, ret->wire_len);
	ret->read = true;
	return 0;
}

static void put_u16(struct buf *out, uint16_t v)
{
	buf_putc(out, (char)(v >> 8));
	buf_putc(out, (char)(v & 0xff));
}

static void put_u32(struct buf *out, uint32_t v)
{
	put_u16(out, (uint16_t)(v >> 16));
	put_u16(out, (uint16_t)(v & 0xffff));
}

static void put_question(struct buf *out, const struct dns_question *q)
{
	const char *label = q->name;
	size_t left = q->name_len;

	while (left > 0) {
		const char *dot = memchr(label, '.', left);
		size_t n = dot != NULL ? (size_t)(dot - label) : left;

		buf_putc(out, (char)n);
		buf_put(out, label, n);
		left -= n;
		label += n;
		if (left > 0) { /* the dot */
			left--;
			label++;
		}
	}
	buf_putc(out, '\0');
	put_u16(out, DNS_TYPE_A);
	put_u16(out, q->class);
}

static void put_header(struct buf *out, uint16_t id, uint16_t flags,
    uint16_t questions, uint16_t answers, uint16_t more)
{
	put_u16(out, id);
	put_u16(out, flags);
	put_u16(out, questions);
	put_u16(out, answers);
	put_u16(out, 0);
	put_u16(out, more);
}

void dns_put_query(
    struct buf *out, uint16_t id, const struct dns_question *q, bool edns)
{
	put_header(out, id, FLAG_RECURSION, 1, 0, edns ? 1 : 0);
	put_question(out, q);
	if (!edns)
		return;
	/* EDNS, RFC 6891: the root's name, OPT, the size that we take. */
	buf_putc(out, '\0');
	put_u16(out, TYPE_OPT);
	put_u16(out, DNS_EDNS_MAX);
	put_u32(out, 0);
	put_u16(out, 0);
}

struct record {
	struct name owner;
	uint16_t type, class, len;
	uint32_t ttl;
	size_t data; /* offset */
};

static bool take_record(struct view *v, struct record *r)
{
	if (!take_name(v, true, &r->owner) || !take_u16(v, &r->type) ||
	    !take_u16(v, &r->class) || !take_u32(v, &r->ttl) ||
	    !take_u16(v, &r->len) || v->len - v->at < r->len)
		return false;
	r->data = v->at;
	v->at += r->len;
	return true;
}

static bool same_name(const struct name *a, const struct name *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static void add_address(
    const struct view *v, const struct record *r, struct dns_addresses *ret)
{
	struct view data = {v->msg, v->len, r->data};
	uint32_t address;

	if (r->len == 4 && ret->count < DNS_ADDRESSES_MAX &&
	    take_u32(&data, &address))
		ret->list[ret->count++] = address;
}

/*
 * The addresses of `name` among n records, into *ret; or its alias, which takes
 * name's place: then true. *ret_cut: not all of the records are there.
 */
static bool look_up(const struct view *answers, unsigned n, struct name *name,
    struct dns_addresses *ret, bool *ret_cut)
{
	struct view v = *answers;
	bool aliased = false;
	struct record r;

	for (unsigned i = 0; i < n && i < RECORDS_MAX; i++) {
		struct view data;
		struct name alias;

		if (!take_record(&v, &r)) {
			*ret_cut = true; /* what is there, counts */
			break;
		}
		if (r.class != DNS_CLASS_IN || !same_name(&r.owner, name))
			continue;
		data = (struct view){v.msg, v.len, r.data};
		if (r.type == DNS_TYPE_A) {
			add_address(&v, &r, ret);
		} else if (r.type == TYPE_CNAME && !aliased &&
			   take_name(&data, true, &alias)) {
			*name = alias;
			aliased = true;
		} else {
			continue;
		}
		if (r.ttl < ret->ttl)
			ret->ttl = r.ttl;
		if (aliased)
			break;
	}
	return aliased;
}

/* A header and nothing else, of a name server that could not read us. */
static bool is_bare_error(const struct view *v, const struct header *h)
{
	const unsigned rcode = h->flags & RCODE;

	return v->at == v->len && h->questions == 0 && h->answers == 0 &&
	       (rcode == DNS_FORMERR || rcode == DNS_NOTIMP);
}

int dns_read_answer(const uint8_t *msg, size_t len, uint16_t id,
    const struct dns_question *q, enum dns_rcode *ret_rcode,
    struct dns_addresses *ret)
{
	struct view v = {msg, len, 0};
	struct name name = {0};
	struct header h;
	uint16_t type, class;
	bool cut;

	if (!take_header(&v, &h) || (h.flags & FLAG_RESPONSE) == 0 ||
	    (h.flags & OPCODE) != 0 || h.id != id)
		return -EPROTO;
	if (!is_bare_error(&v, &h) &&
	    (h.questions != 1 || !take_question(&v, &name, &type, &class) ||
		type != DNS_TYPE_A || class != DNS_CLASS_IN ||
		name.len != q->name_len ||
		memcmp(name.text, q->name, name.len) != 0))
		return -EPROTO;
	cut = (h.flags & FLAG_TRUNCATED) != 0;
	*ret_rcode = (enum dns_rcode)(h.flags & RCODE);
	*ret = (struct dns_addresses){.ttl = UINT32_MAX};
	for (unsigned i = 0; i < ALIASES_MAX; i++)
		if (!look_up(&v, h.answers, &name, ret, &cut))
			break;
	if (cut && ret->count == 0 && *ret_rcode == DNS_NOERROR)
		*ret_rcode = DNS_TRUNCATED;
	return 0;
}

void dns_put_answer(struct buf *out, const struct dns_question *q,
    enum dns_rcode rcode, const struct dns_addresses *a)
{
	const size_t count = a != NULL ? a->count : 0;
	uint16_t flags = (uint16_t)(FLAG_RESPONSE | FLAG_AVAILABLE | rcode);

	if (q->recursion)
		flags |= FLAG_RECURSION;
	put_header(out, q->id, flags, q->read ? 1 : 0, (uint16_t)count, 0);
	if (q->read)
		buf_put(out, q->wire, q->wire_len);
	for (size_t i = 0; i < count; i++) {
		put_u16(out, LABEL_POINTER << 8 | HEADER); /* the question's */
		put_u16(out, DNS_TYPE_A);
		put_u16(out, DNS_CLASS_IN);
		put_u32(out, a->ttl);
		put_u16(out, sizeof(a->list[i]));
		put_u32(out, a->list[i]);
	}
}
