/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/ws_ledger.h"

#include <errno.h>
#include <sys/mman.h>

static void *share(size_t n, size_t size)
{
	void *p = mmap(NULL, n * size, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p != MAP_FAILED ? p : NULL;
}

int ws_ledger_open(
    size_t accounts, size_t claims, struct ws_ledger *ret, struct err *e)
{
	struct ws_ledger l = {.account_max = accounts, .claim_max = claims};

	l.accounts = share(accounts, sizeof *l.accounts);
	l.claims = share(claims, sizeof *l.claims);
	if (l.accounts == NULL || l.claims == NULL) {
		ws_ledger_close(&l);
		return err_sys(e, ENOMEM, "the ledger of workspaces");
	}
	*ret = l;
	return 0;
}

void ws_ledger_close(struct ws_ledger *l)
{
	if (l->accounts != NULL)
		(void)munmap(l->accounts, l->account_max * sizeof *l->accounts);
	if (l->claims != NULL)
		(void)munmap(l->claims, l->claim_max * sizeof *l->claims);
	*l = (struct ws_ledger){0};
}

void ws_account_reset(struct ws_account *a)
{
	atomic_store(&a->bytes, 0);
	atomic_store(&a->files, 0);
	atomic_store(&a->state, 0);
	atomic_store(&a->counted, 1);
	atomic_store(&a->saved, 0);
	atomic_store(&a->saving, 0);
}

bool ws_account_good(const struct ws_account *a)
{
	return atomic_load(&a->counted) == atomic_load(&a->state);
}

bool ws_account_doubtful(const struct ws_account *a)
{
	return atomic_load(&a->state) % 2 == 0 && !ws_account_good(a);
}

void ws_account_set(
    struct ws_account *a, uint_fast32_t state, const struct ws_usage *usage)
{
	atomic_store(&a->bytes, usage->bytes);
	atomic_store(&a->files, usage->files);
	if (state % 2 == 0)
		atomic_store(&a->counted, state);
}

void ws_account_doubt(struct ws_account *a)
{
	(void)atomic_fetch_add(&a->state, 2);
}

void ws_account_take_off(struct ws_account *a, uint64_t bytes)
{
	uint_fast64_t now = atomic_load(&a->bytes);

	while (!atomic_compare_exchange_weak(
	    &a->bytes, &now, now > bytes ? now - bytes : 0))
		;
}

void ws_account_step_begins(struct ws_account *a)
{
	(void)atomic_fetch_or(&a->state, 1);
}

void ws_account_step_ends(struct ws_account *a)
{
	/* From odd to even, and past every count that was begun before. */
	(void)atomic_fetch_add(&a->state, 1);
}

uint64_t ws_ledger_claimed(const struct ws_ledger *l, size_t account)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < l->claim_max; i++)
		if (atomic_load(&l->claims[i].account) == account)
			sum += atomic_load(&l->claims[i].bytes);
	return sum;
}

uint64_t ws_ledger_promised(const struct ws_ledger *l)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < l->account_max; i++)
		sum += atomic_load(&l->accounts[i].saving);
	for (size_t i = 0; i < l->claim_max; i++)
		sum += atomic_load(&l->claims[i].bytes);
	return sum;
}

uint64_t ws_ledger_total(const struct ws_ledger *l)
{
	uint64_t sum = ws_ledger_promised(l);

	for (size_t i = 0; i < l->account_max; i++)
		sum += atomic_load(&l->accounts[i].bytes) +
		       atomic_load(&l->accounts[i].saved);
	return sum;
}
