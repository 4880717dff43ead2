# SPDX-License-Identifier: Apache-2.0
# bash completion for hawser. `hawser complete` prints the candidates, from the command's own tables.
_hawser()
{
    local IFS=$'\n'
    COMPREPLY=($(hawser complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _hawser hawser
