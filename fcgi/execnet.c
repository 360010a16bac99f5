/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/execnet.h"

#include <errno.h>

#include "lib/hostname.h"

static int take_names(
    struct json_object *list, struct execnet *n, struct err *e)
{
	size_t count = json_object_array_length(list);

	/* No name would mean no limit further on. */
	if (count == 0 || count > LIMIT_ALLOW)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "network.allow must have 1 to %u host names; without any "
		    "network: false",
		    LIMIT_ALLOW);
	for (size_t i = 0; i < count; i++) {
		struct json_object *v = json_object_array_get_idx(list, i);
		struct blob *name = &n->names[i];

		if (!json_object_is_type(v, json_type_string))
			return err_set(e, ERR_INVALID_REQUEST, EINVAL,
			    "network.allow[%zu] must be a string", i);
		name->data = (const uint8_t *)json_object_get_string(v);
		name->len = (size_t)json_object_get_string_len(v);
		if (hostname_check_pattern(
			(const char *)name->data, name->len, e) < 0)
			return err_set(e, ERR_INVALID_REQUEST, EINVAL,
			    "network.allow[%zu] %s", i, e->msg);
	}
	n->count = count;
	return 0;
}

int execnet_take(struct json_object *root, struct execnet *ret, struct err *e)
{
	struct json_object *v = json_object_object_get(root, "network");
	struct json_object *list = NULL;
	int r;

	ret->on = true;
	ret->count = 0;
	if (v == NULL)
		return 0;
	if (json_object_is_type(v, json_type_boolean)) {
		ret->on = json_object_get_boolean(v);
		return 0;
	}
	if (!json_object_is_type(v, json_type_object))
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "network must be true or false, or an object with a list "
		    "of host names: allow");
	r = json_get_arr(v, "allow", "network.allow", &list, e);
	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "network: an object must have a list of host names: allow");
	return take_names(list, ret, e);
}
