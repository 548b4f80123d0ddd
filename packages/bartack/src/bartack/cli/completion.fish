function __bartack_completion
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    set -lx _BARTACK_COMPLETE fish
    set -l answer ($program $words "$current" 2>/dev/null)
    if test "$answer[1]" = words
        set -e answer[1]
        printf '%s\n' $answer
    else
        __fish_complete_path "$current"
    end
end

complete --command bartack --no-files --arguments '(__bartack_completion)'
