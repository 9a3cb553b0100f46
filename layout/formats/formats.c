/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/formats/format.h"

const struct format *const formats[] = {
	&format_events,
	&format_wal2json,
	NULL,
};
