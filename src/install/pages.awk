# A man page or a shell's completions of a program, from what it says of itself: awk -v program=NAME -v kind=man|bash|zsh|fish -v version=X
# -v about=TEXT -f pages.awk HELP HELP_ALL, the outputs of --help and --help-all.
#
# --help-all is headings, and below them entries: a name or spellings of an option, two blanks or a new line, then the text, which goes on in
# lines that begin far to the right:
#
#   Model
#     -m, --model PATH                GGUF file, safetensors folder, ORG/NAME in
#                                     cache
function trim(s) { gsub(/^ +| +$/, "", s); return s }

FNR == 1 { files++ }
files == 1 && /^  llm_/ { # an example and what it does
    n_examples++
    at = match($0, /   *[^ ].*$/) ? index(substr($0, 3), "  ") : 0
    example[n_examples] = trim(at ? substr($0, 3, at) : $0)
    example_text[n_examples] = at ? trim(substr($0, at + 3)) : ""
}
files == 1 { next }
/^usage: / { usage = substr($0, 8); next }
/^[^ ]/ { # a heading, or lines of prose
    n++
    head[n] = $0
    idle = /^Understood|^Refused/
    next
}
/^ / && !/^                / {
    n++
    line = trim($0)
    at = index(line, line ~ /^-/ ? "  " : " ")
    left[n] = at ? substr(line, 1, at - 1) : line
    text[n] = at ? trim(substr(line, at)) : ""
    off[n] = idle
    next
}
/^                / { text[n] = text[n] (text[n] ? " " : "") trim($0) }

# The words that an option may be, from the end of its text: "what it is: auto, cpu, cuda".
function words(t,    a, k, i, list) {
    sub(/ \([^()]*\)$/, "", t)
    if (match(t, /: [^:]*$/)) t = substr(t, RSTART + 2)
    k = split(t, a, ", ")
    for (i = 1; i <= k; i++) {
        if (a[i] !~ /^[A-Za-z0-9_.-]+$/ || a[i] == "...") return ""
        list = list (i > 1 ? " " : "") a[i]
    }
    return k > 1 ? list : ""
}

# Spellings and value of entry i: spell[1..], value; returns how many.
function option(i,    s, k, a, j) {
    s = left[i]
    sub(/ \.\.\.$/, "", s)
    value = ""
    k = split(s, spell, ", ")
    if (split(spell[k], a, " ") > 1) { value = a[2]; spell[k] = a[1] }
    return spell[1] ~ /^-/ ? k : 0
}

function is_file(v) { return v ~ /PATH|FILE|DIR/ }

# ---- man

function roff(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    if (s ~ /^[.\047]/) s = "\\&" s
    return s
}

# "Model", "Commands (without one: chat)", "Exit: 0 done, ...", or a line of prose that goes on.
function man_heading(h,    at) {
    at = match(h, /[:(]/)
    if (h ~ /^[A-Z][A-Z_]/) print roff(h)
    else if (!at) print ".SH \"" toupper(roff(h)) "\""
    else print ".SH \"" toupper(roff(trim(substr(h, 1, at - 1)))) (h ~ /^Exit/ ? " STATUS" : "") "\"\n" roff(trim(substr(h, substr(h, at, 1) == ":" ? at + 1 : at)))
}

function man(    i, k, j, s) {
    print ".TH " toupper(program) " 1 \"\" \"llm.h " version "\" \"User Commands\""
    print ".SH NAME\n" program " \\- " roff(about) "\n.SH SYNOPSIS\n\\fB" roff(usage) "\\fR\n.SH EXAMPLES"
    for (i = 1; i <= n_examples; i++) print ".TP\n\\fB" roff(example[i]) "\\fR\n" roff(example_text[i])
    for (i = 1; i <= n; i++) {
        if (i in head) {
            if (head[i] ~ /:/ || (i < n && !((i + 1) in head)) || head[i] ~ /^LLM_/) man_heading(head[i])
            continue
        }
        k = option(i)
        s = k ? "" : "\\fB" roff(left[i]) "\\fR"
        for (j = 1; j <= k; j++) s = s (j > 1 ? ", " : "") "\\fB" roff(spell[j]) "\\fR"
        print ".TP\n" s (k && value ? " \\fI" roff(value) "\\fR" : "") "\n" roff(text[i])
    }
    print ".SH \"SEE ALSO\"\n.BR " (program == "llm_cli" ? "llm_serve" : "llm_cli") " (1)"
}

# ---- completions: of what has an effect

function quoted(s) { gsub(/\047/, "\047\\\047\047", s); return s }

function each_command(    i) {
    n_commands = 0
    section = ""
    for (i = 1; i <= n; i++) {
        if (i in head) section = head[i]
        else if (section ~ /^Commands/ && left[i] !~ /^-/) { command[++n_commands] = left[i]; command_text[n_commands] = text[i] }
    }
}

function bash(    i, k, j, all, files, others, w, cases) {
    for (i = 1; i <= n; i++) {
        if (i in head || off[i] || !(k = option(i))) continue
        w = value ? words(text[i]) : ""
        s = ""
        for (j = 1; j <= k; j++) { s = s (j > 1 ? "|" : "") spell[j]; all = all " " spell[j] }
        if (w) cases = cases "    " s ") mapfile -t COMPREPLY < <(compgen -W \"" w "\" -- \"$cur\"); return ;;\n"
        else if (is_file(value)) files = files (files ? "|" : "") s
        else if (value) others = others (others ? "|" : "") s
    }
    for (i = 1; i <= n_commands; i++) w0 = w0 " " command[i]
    print "# bash completion of " program ", made by make install\n_" program "() {"
    print "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}"
    print "    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi\n    COMPREPLY=()\n    case $prev in"
    printf "%s", cases
    print "    " files ") compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;"
    print "    " others ") return ;;\n    esac\n    if [[ $cur == -* ]]; then"
    print "        mapfile -t COMPREPLY < <(compgen -W \"" substr(all, 2) " --help --help-all --version\" -- \"$cur\")\n        return\n    fi"
    print "    compopt -o filenames 2>/dev/null\n    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
    if (n_commands) print "    if ((COMP_CWORD == 1)); then mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W \"" substr(w0, 2) "\" -- \"$cur\"); fi"
    print "}\ncomplete -F _" program " " program
}

# A backslash before each character of a list.
function guarded(s, chars,    i, c, out) {
    for (i = 1; i <= length(s); i++) { c = substr(s, i, 1); out = out (index(chars, c) ? "\\" : "") c }
    return out
}

function zsh_text(s) { return quoted(guarded(s, "[]:\\")) }

function zsh(    i, k, j, w, what) {
    print "#compdef " program "\n# made by make install"
    print "_" program "_first() {\n    _alternative \\"
    if (n_commands) {
        printf "        \047commands:command:(("
        for (i = 1; i <= n_commands; i++) printf "%s%s\\:\"%s\"", (i == 1 ? "" : " "), command[i], quoted(guarded(command_text[i], "\"\\:`$"))
        print "))\047 \\"
    }
    print "        \047files:file:_files\047\n}\n_arguments \\"
    for (i = 1; i <= n; i++) {
        if (i in head || off[i] || !(k = option(i))) continue
        w = value ? words(text[i]) : ""
        what = !value ? "" : w ? ":" value ":(" w ")" : is_file(value) ? ":" zsh_text(value) ":_files" : ":" zsh_text(value) ":"
        for (j = 1; j <= k; j++) print "    \047" spell[j] (value && spell[j] ~ /^--/ ? "=" : "") "[" zsh_text(text[i]) "]" what "\047 \\"
    }
    print "    \0471: :_" program "_first\047 \\\n    \047*:file:_files\047"
}

function fish(    i, k, j, s, w) {
    print "# made by make install"
    for (i = 1; i <= n_commands; i++)
        print "complete -c " program " -n __fish_use_subcommand -a " command[i] " -d \047" fish_text(command_text[i]) "\047"
    for (i = 1; i <= n; i++) {
        if (i in head || off[i] || !(k = option(i))) continue
        w = value ? words(text[i]) : ""
        s = ""
        for (j = 1; j <= k; j++) s = s (spell[j] ~ /^--/ ? " -l " substr(spell[j], 3) : length(spell[j]) == 2 ? " -s " substr(spell[j], 2) : " -o " substr(spell[j], 2))
        print "complete -c " program s (w ? " -x -a \047" w "\047" : is_file(value) ? " -r -F" : value ? " -x" : "") " -d \047" fish_text(text[i]) "\047"
    }
}

function fish_text(s) { return guarded(s, "\\\047") }

END {
    each_command()
    if (kind == "man") man()
    else if (kind == "bash") bash()
    else if (kind == "zsh") zsh()
    else fish()
}
