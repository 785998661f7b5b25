# Completion of sunaba for fish: sunaba completion fish > ~/.config/fish/completions/sunaba.fish
function __sunaba_complete
    set -l before (commandline -opc)
    set -l cur (commandline -ct)
    set -l found ($before[1] __complete $before[2..-1] "$cur" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$cur"
    end
end
complete -c sunaba -f -a '(__sunaba_complete)'
