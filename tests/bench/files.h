/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "bench.h"

void files_append(const struct bench_options *options);
void files_read(const struct bench_options *options);
void files_latency(const struct bench_options *options);
void files_make(const struct bench_options *options);
void files_open(const struct bench_options *options);
void files_group(const struct bench_options *options);
void files_readers(const struct bench_options *options);
