/* SPDX-License-Identifier: Apache-2.0 */
/* A map of rails as text: see hw_rails_check() in paths.h. */
#ifndef HW_RAILS_H
#define HW_RAILS_H

#include "net/paths.h"

/* Returns true if one rail contains both ends. */
bool hw_rails_join(const char *rails, const struct hw_path_end *mine, const struct hw_path_end *theirs);

/* Reads the map that knob rails gives: the text itself, or that of the file after '@'. Allocates *out. -ENOENT, -E2BIG
 * and others. */
int hw_rails_read(const char *knob, char **out);

#endif
