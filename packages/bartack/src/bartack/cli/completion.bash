_bartack_completion() {
    local kind line
    COMPREPLY=()
    {
        IFS= read -r kind
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done
    } < <(_BARTACK_COMPLETE=bash "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    # compopt does not exist in bash 3, and fails outside of a completion.
    if [[ $kind == words ]]; then
        compopt +o default 2>/dev/null
    fi
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:/] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -o default -F _bartack_completion bartack
