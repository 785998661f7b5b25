# Completion of sunaba for bash: source <(sunaba completion bash)
_sunaba() {
    local line=${COMP_LINE:0:COMP_POINT} program=$1 prefix= breaks= words=() cur c candidate description
    type -P "$program" >/dev/null || program=sunaba
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur=${words[${#words[@]} - 1]}
    # bash completes only what follows the last of these, if it breaks words there.
    for c in = :; do
        [[ $COMP_WORDBREAKS == *"$c"* ]] && breaks+=$c
    done
    [[ -n $breaks && $cur == *[$breaks]* ]] && prefix=${cur%"${cur##*[$breaks]}"}
    COMPREPLY=()
    while IFS=$'\t' read -r candidate description; do
        COMPREPLY+=("${candidate#"$prefix"}")
    done < <("$program" __complete "${words[@]:1}" 2>/dev/null)
    case ${COMPREPLY[0]-} in
    *[=:/]) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -o bashdefault -o default -F _sunaba sunaba
