/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/formats/format.h"

#include <errno.h>

int format_dead_letter(struct buffer *out, const char *kind, struct bytes source,
		       const char *reason, struct bytes line, struct bytes more)
{
	bool base64 = !bytes_are_utf8(line);

	int rc = buffer_printf(out, "\"kind\":\"%s\",\"v\":1,\"source\":", kind);
	if (rc == 0)
		rc = buffer_add_json_string(out, source);
	if (rc == 0)
		rc = buffer_printf(out, ",\"failure_reason\":");
	if (rc == 0)
		rc = buffer_add_json_string(out, bytes_of(reason));
	if (rc == 0)
		rc = buffer_printf(out, ",\"attempt_count\":1%.*s%s,\"raw\":", (int)more.n,
				   more.n ? more.p : "", base64 ? ",\"encoding\":\"base64\"" : "");
	if (rc == 0 && !base64)
		return buffer_add_json_string(out, line);
	if (rc < 0 || buffer_add(out, "\"", 1) < 0 || buffer_add_base64(out, line) < 0)
		return -ENOMEM;
	return buffer_add(out, "\"", 1);
}
