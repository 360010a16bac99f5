/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/ws_table.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"

static const char *const kind_dirs[] = {
    [WS_SESSION] = "sessions", [WS_VOLUME] = "volumes"};

struct ws_account *ws_account(
    const struct ws_table *t, const struct workspace *w)
{
	return &t->ledger.accounts[w->account];
}

struct workspace *ws_table_find(
    const struct ws_table *t, enum ws_kind kind, const struct blob *id)
{
	struct workspace *w;

	TAILQ_FOREACH (w, &t->list, link)
		if (w->kind == kind && !w->gone && strlen(w->id) == id->len &&
		    memcmp(w->id, id->data, id->len) == 0)
			return w;
	return NULL;
}

void ws_set_saved(
    const struct ws_table *t, const struct workspace *w, uint64_t bytes)
{
	struct ws_account *a = ws_account(t, w);

	/* In this order: never too little. */
	atomic_store(&a->saved, bytes);
	atomic_store(&a->saving, 0);
}

static bool find_account(struct ws_table *t, size_t *ret)
{
	for (size_t i = 0; i < t->ledger.account_max; i++) {
		size_t n = (t->next_account + i) % t->ledger.account_max;

		if (!t->taken[n]) {
			*ret = n;
			t->next_account = n + 1;
			return true;
		}
	}
	return false;
}

struct workspace *ws_table_add(
    struct ws_table *t, enum ws_kind kind, const struct blob *id, struct err *e)
{
	struct workspace *w;
	size_t account;

	assert(id->len <= LIMIT_ID);
	if (!find_account(t, &account)) {
		(void)err_set(e, ERR_STORAGE_FULL, ENOSPC,
		    "there are as many sessions and volumes as there can be");
		return NULL;
	}
	w = calloc(1, sizeof *w);
	if (w == NULL) {
		(void)err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
		return NULL;
	}
	w->kind = kind;
	(void)memcpy(w->id, id->data, id->len);
	w->account = account;
	t->taken[account] = true;
	ws_account_reset(ws_account(t, w));
	TAILQ_INSERT_TAIL(&t->list, w, link);
	t->count++;
	return w;
}

static void free_if_done(struct ws_table *t, struct workspace *w)
{
	if (!w->gone || w->refs > 0)
		return;
	TAILQ_REMOVE(&t->list, w, link);
	t->count--;
	ws_account_reset(ws_account(t, w));
	t->taken[w->account] = false;
	free(w);
}

void ws_table_remove(struct ws_table *t, struct workspace *w)
{
	w->gone = true;
	free_if_done(t, w);
}

void ws_sandbox_begins(const struct ws_table *t, struct workspace *w)
{
	if (w->sandboxes++ == 0)
		ws_account_step_begins(ws_account(t, w));
}

void ws_sandbox_ends(const struct ws_table *t, struct workspace *w)
{
	assert(w->sandboxes > 0);
	if (--w->sandboxes == 0)
		ws_account_step_ends(ws_account(t, w));
}

void ws_ref(struct workspace *w)
{
	w->refs++;
}

void ws_unref(struct ws_table *t, struct workspace *w)
{
	assert(w->refs > 0);
	w->refs--;
	free_if_done(t, w);
}

static int read_kind(struct ws_table *t, const struct ws_root *root,
    enum ws_kind kind, struct err *e)
{
	int fd = openat(
	    root->kind_fd[kind], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *x;

	if (d == NULL)
		return err_sys(e, errno, "reading the workspaces");
	while ((x = readdir(d)) != NULL) {
		const struct blob id = {
		    (const uint8_t *)x->d_name, strlen(x->d_name)};

		if (x->d_name[0] == '.')
			continue;
		if (!ws_id_ok(&id))
			log_warn("%s/%s/%.64s is no workspace", root->path,
			    kind_dirs[kind], x->d_name);
		else if (ws_table_add(t, kind, &id, e) == NULL)
			return -e->code;
	}
	return 0;
}

int ws_table_open(const struct config *c, const struct ws_root *root,
    size_t claims, struct ws_table *ret, struct err *e)
{
	int rc;

	*ret = (struct ws_table){0};
	TAILQ_INIT(&ret->list);
	rc = ws_ledger_open(
	    c->max_sessions + WS_VOLUMES_MAX, claims, &ret->ledger, e);
	if (rc < 0)
		return rc;
	ret->taken = calloc(ret->ledger.account_max, sizeof *ret->taken);
	if (ret->taken == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	if ((rc = read_kind(ret, root, WS_SESSION, e)) < 0 ||
	    (rc = read_kind(ret, root, WS_VOLUME, e)) < 0)
		return rc;
	return 0;
}

void ws_table_close(struct ws_table *t)
{
	struct workspace *w;

	while ((w = TAILQ_FIRST(&t->list)) != NULL) {
		TAILQ_REMOVE(&t->list, w, link);
		free(w);
	}
	ws_ledger_close(&t->ledger);
	free(t->taken);
	t->taken = NULL;
}

uint64_t ws_quota(const struct config *c, enum ws_kind kind)
{
	uint64_t mb = kind == WS_VOLUME ? c->vol_disk_mb : c->session_disk_mb;

	return mb << 20;
}

int ws_dir_path(const struct ws_root *root, const struct workspace *w,
    char *ret, size_t size, struct err *e)
{
	int n = snprintf(
	    ret, size, "%s/%s/%s", root->path, kind_dirs[w->kind], w->id);

	if (n < 0 || (size_t)n >= size)
		return err_set(e, ERR_INTERNAL, ENAMETOOLONG,
		    "workspaces_dir has too long a path");
	return 0;
}
