# SPDX-License-Identifier: Apache-2.0
# fish: the words come from `hawser complete`, which reads the tool's own tables.
complete -c hawser -a '(hawser complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
