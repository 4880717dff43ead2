/* SPDX-License-Identifier: Apache-2.0 */
/* A map of rails as text, see hw_rails_check() in paths.h. */
#ifndef HW_RAILS_H
#define HW_RAILS_H

#include "net/paths.h"

/* Returns true if one rail contains both ends. */
bool hw_rails_join(const char *rails, const struct hw_path_end *mine, const struct hw_path_end *theirs);

/* Returns the number of the first rail that contains the end, or -1 if there is none. The numbers count the rails that
 * are not empty, from 0, so that they are equal on all nodes that have the same map. */
int hw_rails_number(const char *rails, const struct hw_path_end *end);

/* Reads the map of rails from knob rails, which is the text itself or '@' and the name of a file. Allocates *out. Fails
 * with -EINVAL if the file is not a text file or is too long, or with another negative errno such as -ENOENT. */
int hw_rails_read(const char *knob, char **out);

#endif
