//! Responses over TLS, which the agents encrypt.

use super::*;

/// A service over TLS besides, with the same pool.
fn start_over_tls(plan: Plan) -> Result<Cluster> {
    let mut cluster = Cluster::prepare(Plan { tls: Some(String::new()), ..plan })?;
    cluster.write_certificate()?;
    for node in 0..cluster.plan.servers.len() {
        cluster.start_node(node)?;
    }
    cluster.start_switch()?;
    Ok(cluster)
}

impl<'a> Downloads<'a> {
    fn over_tls(lab: &'a Lab, scale: (usize, usize), options: &[&str]) -> Result<Self> {
        let options = ["--insecure", "--http1.1"].iter().chain(options).map(|option| (*option).to_owned());
        Ok(Downloads { scheme: "https", options: options.collect(), ..Downloads::of(lab, scale)? })
    }
}

#[test]
fn downloads_over_tls_go_on_when_their_node_dies() -> Result {
    let cluster = start_over_tls(plan(ServerKind::Nginx, 3))?;
    let downloads = Downloads::over_tls(&cluster.lab, scale(), &[])?;
    let anew = downloads.beside(|| {
        let had = of_resume(&cluster.lab, 0, "under_way")?;
        cluster.lab.node(0).set_loss(ALL, ALL)?;
        println!("{had} responses have gone on after {:?}", downloads.wait_for(had)?);
        Ok(())
    })?;
    assert_eq!((anew, downloads.dispatched("not_resumed")?), (0, 0));
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}
