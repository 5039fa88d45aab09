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
    HTTP_FILTERS: String = ("hadoop.http.filter.initializers",
        "org.apache.hadoop.http.lib.StaticUserWebFilter",
        "What stands before the pages, but not before WebHDFS: that filter, \
         org.apache.hadoop.security.AuthenticationFilterInitializer, or both.");
    HTTP_AUTHENTICATION: String = ("hadoop.http.authentication.type", "simple",
        "How the latter knows callers: `kerberos`, or `simple` for `user.name=` in the URL.");
    HTTP_ANONYMOUS: bool = ("hadoop.http.authentication.simple.anonymous.allowed", "true",
        "Whether the latter needs no name.");
    HTTP_PRINCIPAL: Option<String> = ("hadoop.http.authentication.kerberos.principal", "",
        "Principal of the web port, which callers have to call; `_HOST` is its host. With `*`, or \
         none, any of the keytab that begins with HTTP/ serves.");
    HTTP_KEYTAB: Option<String> = ("hadoop.http.authentication.kerberos.keytab", "",
        "The keytab with its key.");
    HTTP_OPEN_PATHS: Vec<String> = ("hadoop.http.authentication.kerberos.endpoint.whitelist", "",
        "Pages that need no ticket, such as `/jmx`.");
    HTTP_COOKIE_LASTS: std::time::Duration = ("hadoop.http.authentication.token.validity", "36000",
        "How long the cookie lasts that callers get instead of a ticket each time.").seconds();
    HTTP_COOKIE_IDLE: String = ("hadoop.http.authentication.token.max-inactive-interval", "-1",
        "Seconds without a request after which it counts no more; -1 for no limit.");
    HTTP_COOKIE_SECRET_FROM: String = ("hadoop.http.authentication.signer.secret.provider", "file",
        "What signs it: `file`, or `random` for a secret of this process.");
    HTTP_COOKIE_SECRET: Option<String> = ("hadoop.http.authentication.signature.secret.file", "",
        "File with what signs the cookie, the same on all servers that shall take it; \
         hadoop-http-auth-signature-secret in the user's home when empty.");
    HTTP_COOKIE_DOMAIN: Option<String> = ("hadoop.http.authentication.cookie.domain", "",
        "Domain of the cookie; the server's own when empty.");
    ADMINISTRATORS: String = ("dfs.cluster.administrators", "",
        "With service-level authorization, who sees the log and sets its levels: \
         `user,user group,group`.");
    PAGES_OF_ADMINISTRATORS: bool = ("hadoop.security.instrumentation.requires.admin", "false",
        "Whether /jmx, /conf, /stacks, /prom and the page are for them alone, too.");
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
