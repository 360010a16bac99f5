/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/artifacts.h"

#include <errno.h>
#include <string.h>

#include "fcgi/text.h"
#include "lib/json.h"
#include "lib/kproto.h"

/* A text that is hardly one may become six times as long in JSON (\u0000): so
 * much of it is not kept for an answer. */
#define JSON_MAX (2u * LIMIT_ARTIFACT)

void artifacts_done(struct artifacts *a)
{
	buf_free(&a->json);
	buf_free(&a->data);
}

void artifacts_drop(struct artifacts *a)
{
	buf_free(&a->json);
	a->dropped = a->dropped || a->count > 0;
}

static int refuse(struct err *e, const char *why)
{
	return err_set(e, ERR_SANDBOX_FAILED, EPROTO,
	    "isobox-runner does not keep to the protocol: an artifact: %s",
	    why);
}

/* Base64 for what is no text, as the API has it; else as it is, well-formed. */
static void put_data(struct artifacts *a)
{
	if (a->text) {
		buf_puts(&a->json, ",\"data\":");
		text_put_decoded(&a->json, a->data.data, a->data.len, false);
	} else {
		buf_puts(&a->json, ",\"dataB64\":");
		text_put_base64(&a->json, a->data.data, a->data.len);
	}
}

static int finish(struct artifacts *a, struct err *e)
{
	const size_t before = a->json.len;

	a->open = false;
	buf_puts(&a->json, before > 0 ? ",{\"type\":" : "{\"type\":");
	json_put_cstr(&a->json, a->type);
	put_data(a);
	buf_putc(&a->json, '}');
	buf_free(&a->data);
	if (a->json.failed)
		return err_sys(e, ENOMEM, "an artifact");
	if (a->json.len - before > JSON_MAX) {
		a->json.len = before;
		a->dropped = true;
	}
	return 0;
}

int artifacts_begin(
    struct artifacts *a, const uint8_t *payload, size_t len, struct err *e)
{
	struct guest_artifact x;

	if (guest_artifact_decode(payload, len, &x, e) < 0)
		return refuse(e, "malformed");
	if (a->open)
		return refuse(e, "one before the last is whole");
	if (a->count == LIMIT_ARTIFACTS)
		return refuse(e, "one too many");
	memcpy(a->type, x.type.data, x.type.len); /* LIMIT_MIME_TYPE at most */
	a->type[x.type.len] = '\0';
	a->text = x.text;
	a->left = x.bytes;
	a->open = true;
	a->count++;
	return a->left > 0 ? 0 : finish(a, e);
}

int artifacts_data(
    struct artifacts *a, const uint8_t *data, size_t len, struct err *e)
{
	if (!a->open || len == 0 || len > a->left)
		return refuse(e, "bytes that nobody announced");
	buf_put(&a->data, data, len);
	if (a->data.failed)
		return err_sys(e, ENOMEM, "an artifact");
	a->left -= len;
	return a->left > 0 ? 0 : finish(a, e);
}

void artifacts_end(struct artifacts *a)
{
	a->dropped = a->dropped || a->open;
	a->open = false;
	buf_free(&a->data);
}
