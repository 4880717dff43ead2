# SPDX-License-Identifier: Apache-2.0
# bash: the words come from `hawser complete`, which reads the tool's own tables.
_hawser()
{
    local IFS=$'\n'
    COMPREPLY=($(hawser complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _hawser hawser
