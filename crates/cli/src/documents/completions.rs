//! Completions for shells: clap's, and the names of nodes behind `drain` and `undrain`, which only a running process or
//! the configuration knows. clap's own way to ask the program is not stable yet, so each script gets a few lines that call
//! `switchback node-names`.

use clap::Command;
use clap_complete::Shell;

/// Files of the shells' completions, below `/usr/local/share`.
pub(super) const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/switchback"),
    (Shell::Zsh, "zsh/site-functions/_switchback"),
    (Shell::Fish, "fish/vendor_completions.d/switchback.fish"),
];

const BASH: &str = r#"
_switchback_with_nodes() {
    _switchback "$@"
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    if [[ ${COMP_WORDS[1]} == @(drain|undrain) && $COMP_CWORD -gt 1 && $word != -* && $before != --@(socket|timeout) ]]; then
        COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" node-names 2> /dev/null)" -- "$word"))
    fi
}
complete -F _switchback_with_nodes -o bashdefault -o default switchback
"#;

/// What clap's script does before its functions, and with which function it completes the argument, a host to clap.
const ZSH_BEGINNING: &str = "autoload -U is-at-least\n";
const ZSH_HOSTS: &str = ":_hosts'";
const ZSH: &str = r#"
_switchback_nodes() {
    compadd -- ${(f)"$(switchback node-names 2> /dev/null)"}
}
"#;

const FISH: &str = r#"
complete -c switchback -n "__fish_seen_subcommand_from drain undrain" -f -a "(switchback node-names 2> /dev/null)"
"#;

/// The scripts with their files.
pub(super) fn completions(program: &Command) -> Vec<(String, Vec<u8>)> {
    let script = |(shell, file): (Shell, &str)| {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut program.clone(), "switchback", &mut text);
        let text = String::from_utf8(text).expect("names and help texts are UTF-8");
        let text = match shell {
            Shell::Bash => text + BASH,
            Shell::Zsh => text
                .replacen(ZSH_BEGINNING, &format!("{ZSH_BEGINNING}{ZSH}"), 1)
                .replace(ZSH_HOSTS, ":_switchback_nodes'"),
            _ => text + FISH,
        };
        (file.to_owned(), text.into_bytes())
    };
    COMPLETIONS.into_iter().map(script).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use clap::CommandFactory;

    use super::super::man::{for_pages, with_pages};
    use super::super::tests::said;
    use super::super::visible;
    use super::*;
    use crate::Cli;

    /// bash's script in a directory of its own.
    fn bash(test: &str) -> (PathBuf, PathBuf) {
        let directory = std::env::temp_dir().join(format!("switchback-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("completions");
        fs::write(&file, &completions(&visible(&Cli::command()))[0].1).unwrap();
        (directory, file)
    }

    /// Candidates for the last word of each line, from one shell that completes as bash is told to.
    fn candidates(file: &std::path::Path, path: &str, lines: &str) -> String {
        let script = "source \"$0\"
            [[ $(complete -p switchback) =~ -F\\ ([a-z_]+) ]]
            while IFS= read -r line; do
                read -ra COMP_WORDS <<< \"$line\"
                [[ $line == *' ' ]] && COMP_WORDS+=('')
                COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
                ${BASH_REMATCH[1]} switchback \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"
                echo \"${COMPREPLY[@]}\"
            done";
        let set = format!("PATH={path}:$PATH; {script}");
        said(&["bash", "-c", &set, file.to_str().unwrap()], lines.as_bytes())
    }

    #[test]
    fn bash_completes_commands_and_options() {
        let (directory, file) = bash("completions");
        assert_eq!(said(&["bash", "-n", file.to_str().unwrap()], b""), "");
        let program = for_pages(visible(&Cli::command()));
        let mut questions = Vec::new();
        for command in with_pages(&program) {
            let name = command.get_bin_name().unwrap();
            let longs = command.get_arguments().filter_map(|argument| argument.get_long());
            questions.extend(longs.map(|long| (name, format!("--{long}"))));
            questions.extend(command.get_subcommands().map(|below| (name, below.get_name().to_owned())));
        }
        let lines: String = questions.iter().map(|(before, word)| format!("{before} {word}\n")).collect();
        let answers = candidates(&file, "", &lines);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(answers.lines().count(), questions.len(), "{answers}");
        for ((before, word), answer) in questions.iter().zip(answers.lines()) {
            assert!(answer.split(' ').any(|candidate| candidate == word), "{before} {word}: {answer}");
        }
    }

    #[test]
    fn bash_offers_the_nodes_where_one_is_meant() {
        let (directory, file) = bash("nodes");
        let program = directory.join("switchback");
        fs::write(&program, "#!/bin/sh\n[ \"$*\" = node-names ] && printf 'web1\\nweb2\\ndb1\\n'\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let questions = [
            ("switchback drain ", "web1 web2 db1"),
            ("switchback drain we", "web1 web2"),
            ("switchback undrain d", "db1"),
            ("switchback drain --no-wait web2", "web2"),
            ("switchback drain --no", "--no-wait"),
            ("switchback drain --timeout we", ""),
            ("switchback reload we", ""),
        ];
        let lines: String = questions.iter().map(|(line, _)| format!("{line}\n")).collect();
        let answers = candidates(&file, directory.to_str().unwrap(), &lines);
        fs::remove_dir_all(&directory).unwrap();
        let expected: Vec<&str> = questions.iter().map(|(_, answer)| *answer).collect();
        assert_eq!(answers.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_other_shells_ask_for_the_nodes_too() {
        let [_, zsh, fish]: [_; 3] = completions(&visible(&Cli::command())).try_into().expect("three shells");
        let [zsh, fish] = [zsh, fish].map(|(_, text)| String::from_utf8(text).unwrap());
        assert_eq!(zsh.matches(":_switchback_nodes'").count(), 2, "drain and undrain");
        assert!(zsh.contains(ZSH) && !zsh.contains("_hosts"));
        assert!(fish.ends_with(FISH));
    }
}
