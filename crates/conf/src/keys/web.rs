//! The web port: WebHDFS, and who may use it.

use super::keys;

keys! {
    DATANODE_HTTP_ADDRESS: crate::address::HostPort = ("dfs.datanode.http.address",
        "0.0.0.0:9864",
        "Address of the web port: WebHDFS, metrics and a page.");
    DATANODE_HTTPS_ADDRESS: crate::address::HostPort = ("dfs.datanode.https.address",
        "0.0.0.0:9865",
        "Address of the web port with TLS.");
    HTTP_POLICY: String = ("dfs.http.policy", "HTTP_ONLY",
        "HTTP_ONLY, HTTPS_ONLY or HTTP_AND_HTTPS.");
    HTTPS_KEYSTORE_RESOURCE: String = ("dfs.https.server.keystore.resource", "ssl-server.xml",
        "File in the configuration's directory that names the keystore, JKS or PKCS12.");
    CLIENT_CERT: bool = ("hadoop.ssl.require.client.cert", "false",
        "Whether clients of the port with TLS need a certificate that the truststore trusts.");
    PROMETHEUS_ENABLED: bool = ("hadoop.prometheus.endpoint.enabled", "false",
        "Whether `/prom` also has the names of Apache's node.");
    HTTP_STATIC_USER: String = ("hadoop.http.staticuser.user", "dr.who",
        "User of WebHDFS requests without one.");
    REPLICATION: u32 = ("dfs.replication", "3",
        "Replicas of files created over WebHDFS; the NameNode refuses too few.")
        .max(32_767);
    WEBHDFS_USER_PATTERN: String = ("dfs.webhdfs.user.provider.user.pattern",
        "^[A-Za-z_][A-Za-z0-9._-]*[$]?$",
        "Names of WebHDFS users.");
    HTTPSERVER_FILTER_HANDLERS: String = ("dfs.datanode.httpserver.filter.handlers",
        "org.apache.hadoop.hdfs.server.datanode.web.RestCsrfPreventionFilterHandler",
        "Guards of WebHDFS: this one, HostRestrictingAuthorizationFilterHandler.");
    WEB_HOST_ALLOW_RULES: String = ("dfs.web.authentication.host.allow.rules", "",
        "Readers for the latter: `user,network/bits,directory|...`, `*` for any.");
    WEBHDFS_CSRF_ENABLED: bool = ("dfs.webhdfs.rest-csrf.enabled", "false",
        "Whether browsers need a header that other sites' pages cannot set.");
    WEBHDFS_CSRF_HEADER: String = ("dfs.webhdfs.rest-csrf.custom-header", "X-XSRF-HEADER",
        "That header.");
    WEBHDFS_CSRF_METHODS_TO_IGNORE: String = ("dfs.webhdfs.rest-csrf.methods-to-ignore",
        "GET,OPTIONS,HEAD,TRACE",
        "Methods without it.");
    WEBHDFS_CSRF_BROWSERS: String = ("dfs.webhdfs.rest-csrf.browser-useragents-regex",
        "^Mozilla.*,^Opera.*",
        "Browsers, as patterns.");
    SENSITIVE_CONFIG_KEYS: String = ("hadoop.security.sensitive-config-keys",
        "secret$, password$, ssl.keystore.pass$, fs.s3a.server-side-encryption.key, \
         fs.s3a.*.server-side-encryption.key, fs.s3a.encryption.algorithm, \
         fs.s3a.encryption.key, fs.s3a.encryption.context, fs.s3a.secret.key, \
         fs.s3a.*.secret.key, fs.s3a.session.key, fs.s3a.*.session.key, fs.s3a.session.token, \
         fs.s3a.*.session.token, fs.azure.account.key.*, fs.azure.oauth2.*, fs.adl.oauth2.*, \
         fs.gs.encryption.*, fs.gs.proxy.*, fs.gs.auth.*, credential$, oauth.*secret, \
         oauth.*password, oauth.*token, hadoop.security.sensitive-config-keys",
        "Patterns of the names of properties whose values `/conf` does not show.");
}
