# SPDX-License-Identifier: Apache-2.0
# fish completion for hawser. `hawser complete` prints the candidates, from the command's own tables.
complete -c hawser -a '(hawser complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
