#compdef sunaba
# Completion of sunaba for zsh: source <(sunaba completion zsh), or a file _sunaba in a folder of fpath.
_sunaba() {
    local line
    local -a found
    for line in "${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( ${#found} )); then
        _describe sunaba found
    else
        _files
    fi
}
if [[ ${funcstack[1]-} == _sunaba ]]; then
    _sunaba "$@"
else
    compdef _sunaba sunaba
fi
