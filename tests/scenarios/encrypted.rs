//! A broker and an S3 server behind TLS: an untrusted certificate is an error that names the cause; with a trusted one
//! everything works as without TLS.

use std::fs;

use gpufleet_local::Signal;
use gpufleet_local_s3::Server;
use gpufleet_tests::{Ended, Ground, TlsProxy, gpufleet_command};

/// The variable for the file of trusted certificate authorities, which replaces the system's.
const TRUSTED: &str = "SSL_CERT_FILE";

async fn submit(proxy: &TlsProxy, trusted: Option<&str>) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.bin"), [1.0_f32, 2.0].map(f32::to_le_bytes).concat()).unwrap();
    let environment = [("GPUFLEET_AMQP_URL", Some(proxy.url())), (TRUSTED, trusted)];
    let environment: Vec<_> = environment.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let saxpy = ["submit", "saxpy", "--arg", "a=2.0", "--in", "x=x.bin:f32[2]", "--inout", "y=x.bin:f32[2]"];
    gpufleet_command(folder.path(), &environment, &saxpy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_over_tls_if_client_and_worker_trust_the_certificate() {
    let ground = Ground::shared("tls").await;
    let proxy = ground.tls_proxy().await;
    let trusted = proxy.certificate().to_str().unwrap();
    let worker = ground.worker_in(&["--amqp-url", proxy.url()], &[(TRUSTED, trusted)]).await;
    let ended = submit(&proxy, Some(trusted)).await.ok();
    assert!(ended.stdout.contains("succeeded"), "{ended:?}");
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_with_an_untrusted_certificate_is_refused_with_advice() {
    let ground = Ground::shared("tls-untrusted").await;
    let proxy = ground.tls_proxy().await;
    let ended = submit(&proxy, None).await;
    assert_eq!(ended.code, 7, "{ended:?}");
    for said in ["TLS", "UnknownIssuer", TRUSTED] {
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_travel_over_tls_if_client_and_worker_trust_the_certificate_of_the_bucket() {
    /// The number of floats in an array that is large enough for the blob store.
    const FLOATS: usize = 1 << 19;
    let scratch = tempfile::tempdir().unwrap();
    let objects = scratch.path().join("objects");
    fs::create_dir(&objects).unwrap();
    let server = Server::start(&objects).unwrap();
    server.create_bucket("arrays").unwrap();
    let proxy = TlsProxy::start(&server.address().to_string(), |port| format!("https://localhost:{port}")).await;
    let (store, key) = (format!("s3://arrays?endpoint={}", proxy.url()), server.credentials());
    let of_store = [
        ("GPUFLEET_BLOBS", store.as_str()),
        ("AWS_ACCESS_KEY_ID", &key.access_key_id),
        ("AWS_SECRET_ACCESS_KEY", &key.secret_access_key),
    ];
    let trusting = [&of_store[..], &[(TRUSTED, proxy.certificate().to_str().unwrap())]].concat();
    let ground = Ground::with_environment("tls-bucket", &trusting).await;
    let _worker = ground.worker().await;
    fs::write(scratch.path().join("x.bin"), vec![0; 4 * FLOATS]).unwrap();
    let form = format!("x.bin:f32[{FLOATS}]");
    let (x, y) = (format!("x={form}"), format!("y={form}"));
    let saxpy = ["submit", "saxpy", "--arg", "a=2.0", "--in", &x, "--inout", &y, "--out", "y=y.npy"];
    let submit = async |environment: &[(&str, &str)]| {
        let environment = [&[("GPUFLEET_AMQP_URL", ground.endpoints().amqp_url.as_str())], environment].concat();
        gpufleet_command(scratch.path(), &environment, &saxpy).await
    };
    let ended = submit(&of_store).await;
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains("UnknownIssuer") && ended.stderr.contains(TRUSTED), "{ended:?}");
    submit(&trusting).await.ok();
    assert!(fs::metadata(scratch.path().join("y.npy")).unwrap().len() > 4 * FLOATS as u64);
    assert!(server.received().iter().any(|request| request.method == "PUT" && request.target.contains("blake3-")));
    ground.check_history(1).await;
}
