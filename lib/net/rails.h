/* SPDX-License-Identifier: Apache-2.0 */
/* A map of rails as text: see hw_rails_check() in paths.h. */
#ifndef HW_RAILS_H
#define HW_RAILS_H

#include "net/paths.h"

/* Is there a rail with both on it? */
bool hw_rails_join(const char *rails, const struct hw_path_end *mine, const struct hw_path_end *theirs);

/* What knob rails says: the text itself, or that of the file behind '@'. Allocated. -ENOENT, -E2BIG, .. */
int hw_rails_read(const char *knob, char **out);

#endif
