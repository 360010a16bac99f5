/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_PREDICT_H
#define ISOBOX_PREDICT_H

#include <stdbool.h>

#include "lib/job.h"
#include "lib/registry.h"

/*
 * Whether the job's entry looks as if it loads one of the modules that the
 * runtime preloads: a line with the word import, from or require, and with the
 * module's top name. A guess from at most the first 64 KiB; being wrong costs
 * speed and nothing else. Pure.
 */
bool predict_preload(const struct runtime *rt, const struct job *job);

#endif
