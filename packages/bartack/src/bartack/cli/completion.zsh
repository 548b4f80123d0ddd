#compdef bartack

_bartack() {
    local line ret=1
    local -a whole partial
    for line in "${(@f)$(_BARTACK_COMPLETE=zsh "${words[1]}" "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
            (files) _files && ret=0 ;;
            (.*) whole+=("${line[2,-1]}") ;;
            (,*) partial+=("${line[2,-1]}") ;;
        esac
    done
    (( ${#whole} )) && _describe bartack whole && ret=0
    (( ${#partial} )) && _describe bartack partial -S '' && ret=0
    return ret
}

if [[ ${funcstack[1]} == _bartack ]]; then
    _bartack "$@"
else
    compdef _bartack bartack
fi
