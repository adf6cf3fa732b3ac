//! The recipes of `docs/cookbook.md` do what they say: each is reloaded in a cluster that runs, and its commands print what
//! stands below them.

mod common;
#[allow(dead_code)] // tests/documents.rs uses the rest
#[path = "documents/site.rs"]
mod site;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use common::markdown::{self, Code};
use common::{PATIENCE, Result, said_by, wait_until};
use site::Site;
use switchback_lab::ServerOptions;

const PAGE: &str = "docs/cookbook.md";

/// A configuration, and commands with their output.
struct Recipe<'a> {
    configuration: &'a Code,
    commands: Vec<(&'a Code, &'a str)>,
}

/// What all recipes begin with, and the recipes.
fn recipes(blocks: &[Code]) -> (&str, Vec<Recipe<'_>>) {
    let (base, rest) = blocks.split_first().expect("there is the cluster of all recipes");
    let mut recipes: Vec<Recipe<'_>> = Vec::new();
    let mut rest = rest.iter();
    while let Some(block) = rest.next() {
        match block.language.as_deref() {
            Some("toml") => recipes.push(Recipe { configuration: block, commands: Vec::new() }),
            Some("sh") => {
                let output = rest.next().filter(|code| code.language.as_deref() == Some("text"));
                let output = output.unwrap_or_else(|| panic!("{PAGE}:{}: without output", block.line));
                let recipe = recipes.last_mut().expect("a configuration comes first");
                recipe.commands.push((block, &output.text));
            }
            other => panic!("{PAGE}:{}: what is {other:?}?", block.line),
        }
    }
    (&base.text, recipes)
}

/// A certificate of the server and one of a client, of one CA.
fn write_certificates(site: &Site) -> Result {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    site.write("ca.pem", &parameters.self_signed(&key)?.pem())?;
    let ca = Issuer::new(parameters, key);
    for (name, host) in [("shop", "www.example.com"), ("client", "client.example.com")] {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new([host.to_owned()])?;
        parameters.distinguished_name.push(DnType::CommonName, host);
        site.write(&format!("{name}.pem"), &parameters.signed_by(&key, &ca)?.pem())?;
        site.write(&format!("{name}.key"), &key.serialize_pem())?;
    }
    Ok(())
}

#[test]
fn recipes_do_what_they_say() -> Result {
    let _alone = common::alone();
    let blocks: Vec<Code> = markdown::all_code()
        .into_iter()
        .filter(|code| code.file == PAGE && code.language.is_some())
        .collect();
    let (base, recipes) = recipes(&blocks);
    let site = Site::new(4)?;
    let (switch, client) = (site.lab.switch(0), site.lab.client(0));
    write_certificates(&site)?;
    site.run(switch, "switchback keygen cluster.key")?;
    let cluster =
        |recipe: &Recipe<'_>| site.write("cluster.toml", &format!("{base}\n{}", recipe.configuration.text));
    cluster(&recipes[0])?;
    // Addresses of nodes count from 20 here, and from 21 there.
    for number in 1..=3 {
        let node = site.lab.node(number);
        node.nginx(&ServerOptions::default())?;
        let agent = format!("switchback node --config cluster.toml --name n{number} --interface eth0");
        site.start(node, "agent", &agent)?;
    }
    site.start(switch, "switch", "switchback switch --config cluster.toml --interface eth0")?;
    for recipe in &recipes {
        let place = format!("{PAGE}:{}", recipe.configuration.line);
        cluster(recipe)?;
        site.run(switch, "switchback check cluster.toml")?;
        for host in [1, 2, 3].map(|node| site.lab.node(node)).into_iter().chain([switch]) {
            site.run(host, "switchback reload")?;
        }
        assert!(!recipe.commands.is_empty(), "{place}: nothing shows that it works");
        // Servers of TLS passthrough and of gRPC have tests of their own.
        if recipe.commands.iter().any(|(command, _)| command.text.contains("curl")) {
            let tested = || Ok(site.run(switch, "switchback test --config cluster.toml").unwrap_or_default());
            wait_until("all is well", PATIENCE, tested, |said| said.contains(" 0 failed"))?;
        }
        for (command, output) in &recipe.commands {
            let said = said_by(&mut site.shell(client, &command.text))?;
            assert_eq!(said, **output, "{PAGE}:{}: {}", command.line, command.text);
        }
        println!("{place} works");
    }
    site.lab.down()?;
    Ok(())
}
