//! Examples and files for the manual pages of commands.

/// Command, example, what it does.
pub(super) const EXAMPLES: [(&str, &str, &str); 38] = [
    ("switchback", "switchback lab demo", "Shows a cluster in network namespaces of this machine."),
    ("switchback", "switchback doctor --interface eth0", "Tells what this machine lacks."),
    ("switchback", "switchback status", "Shows what the processes on this machine are doing."),
    (
        "switchback switch",
        "switchback switch --interface eth0",
        "Runs the switch of /etc/switchback/cluster.toml.",
    ),
    (
        "switchback switch",
        "switchback switch --config cluster.toml --interface eth0 --interface eth1 --name edge1",
        "One of several switches, whose nodes are behind a second interface.",
    ),
    ("switchback node", "switchback node --name n1 --interface eth0", "Runs the agent of the node n1."),
    ("switchback run", "switchback run --name n1", "Runs the roles that the file gives to n1."),
    (
        "switchback client",
        "switchback client --interface eth0",
        "Runs the shim, as /etc/switchback/client.toml says.",
    ),
    (
        "switchback check",
        "switchback check",
        "Checks /etc/switchback/cluster.toml and the files that it names.",
    ),
    (
        "switchback check",
        "switchback check new.toml && cp new.toml /etc/switchback/cluster.toml",
        "Replaces the file if the new one is valid.",
    ),
    (
        "switchback keygen",
        "switchback keygen /etc/switchback/cluster.key",
        "Makes the cluster key; copy it to every machine.",
    ),
    (
        "switchback keygen",
        "switchback keygen client.key --client 198.51.100.7 2001:db8:1::7",
        "Makes the keys of a client that runs the shim.",
    ),
    ("switchback doctor", "switchback doctor --interface eth0", "Checks the machine and this interface."),
    ("switchback test", "switchback test --wait 30s", "Waits half a minute at the most until all is well."),
    (
        "switchback test",
        "switchback test --json | jq '.[] | select(.result == \"failed\")'",
        "What has failed, for programs.",
    ),
    (
        "switchback explain",
        "switchback explain http://www.example.com/img/a.png",
        "Tells which node would take this request.",
    ),
    (
        "switchback explain",
        "switchback explain --method POST --header 'Content-Length: 5' --service shop /cart",
        "The same for a request with a body to the service shop.",
    ),
    (
        "switchback explain",
        "printf 'GET / HTTP/1.1\\nHost: a\\n\\n' | switchback explain --request -",
        "The same for a request byte by byte.",
    ),
    (
        "switchback explain",
        "switchback explain --pcap clients.pcap",
        "Tells what becomes of the connections in a capture.",
    ),
    ("switchback status", "switchback status --json | jq .role", "Which processes run."),
    ("switchback ready", "switchback ready && echo serving", "Asks by the exit status, as keepalived does."),
    ("switchback top", "switchback top", "Follows the cluster until q is pressed."),
    ("switchback reload", "switchback reload", "Applies the changed file in all processes of this machine."),
    ("switchback drain", "switchback drain n1 && ssh n1 reboot", "Restarts a node without a failed request."),
    ("switchback drain", "switchback drain n1 --timeout 30s", "Waits half a minute at the most."),
    ("switchback drain", "switchback drain --self", "Withdraws this machine's switch."),
    ("switchback undrain", "switchback undrain n1", "Gives the node requests again."),
    ("switchback undrain", "switchback undrain --self", "Makes this machine's switch ready again."),
    (
        "switchback documents",
        "switchback documents /usr/local/share",
        "For a program that no package has installed.",
    ),
    (
        "switchback lab up",
        "switchback lab up --nodes 3 --server nginx",
        "A cluster whose nodes serve a page that names them.",
    ),
    ("switchback lab up", "switchback lab up --switches 3 --router bird", "Three switches behind a router."),
    ("switchback lab exec", "switchback lab exec switch0", "A shell in the network of the switch."),
    (
        "switchback lab exec",
        "switchback lab exec client0 curl http://192.0.2.100/",
        "A request of the client.",
    ),
    ("switchback lab down", "switchback lab down", "Removes the only lab."),
    ("switchback lab demo", "switchback lab demo --load 20", "The demonstration with a load of 20 seconds."),
    (
        "switchback sim run",
        "switchback sim run scenario.toml",
        "Simulates the scenario and shows what was measured.",
    ),
    (
        "switchback sim run",
        "switchback sim run scenario.toml --json | jq .latency_p99_s.mean",
        "One of the numbers, in seconds.",
    ),
    (
        "switchback sim plan",
        "switchback sim plan scenario.toml --p99-ms 20",
        "How many machines answer 99 of 100 requests in 20 ms.",
    ),
];

/// Path, what it is, and the commands whose pages list it, without `switchback`.
pub(super) const FILES: [(&str, &str, &[&str]); 6] = [
    (
        "/etc/switchback/cluster.toml",
        "The cluster, the same file on every machine.",
        &["switch", "node", "run", "check", "keygen", "test", "explain", "reload"],
    ),
    (
        "/etc/switchback/cluster.key",
        "The cluster key, readable by root only, if cluster.toml names it so.",
        &["switch", "node", "run", "check", "keygen", "test"],
    ),
    (
        "/etc/switchback/client.toml",
        "What the shim on a client's machine needs to know.",
        &["client", "reload"],
    ),
    (
        "/etc/default/switchback",
        "The options of the package's systemd units.",
        &["switch", "node", "run", "client"],
    ),
    (
        "/run/switchback",
        "Sockets of the processes that run; status, reload and drain speak to them.",
        &["switch", "node", "run", "client", "status", "ready", "top", "reload", "drain", "undrain"],
    ),
    (
        "/sys/fs/bpf/switchback",
        "What goes on when a process is killed, until the next one takes it over.",
        &["switch", "node", "run", "client"],
    ),
];
