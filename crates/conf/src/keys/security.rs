//! Who is who: Kerberos, names, and what protects RPC.

use super::keys;

keys! {
    SECURITY_AUTHENTICATION: String = ("hadoop.security.authentication", "simple",
        "`simple` believes what callers say; `kerberos` has \
         both sides prove who they are. Callers of the RPC port need a ticket; with a block token \
         they may ask how long its block is.");
    RPC_PROTECTION: String = ("hadoop.rpc.protection", "authentication",
        "With Kerberos, what protects RPC: `authentication`, `integrity` or `privacy`, or several \
         with commas, the most wanted first.");
    AUTH_TO_LOCAL: Option<String> = ("hadoop.security.auth_to_local", "",
        "Rules for the short names of principals; DEFAULT when empty.");
    AUTH_TO_LOCAL_MECHANISM: String = ("hadoop.security.auth_to_local.mechanism", "hadoop",
        "With `mit`, a principal without a rule keeps its name, and names may have / and @.");
    DATANODE_PRINCIPAL: Option<String> = ("dfs.datanode.kerberos.principal", "",
        "The node's principal; `_HOST` stands for its host name.")
        .aliases(&["dfs.datanode.user.name.key"]);
    DATANODE_KEYTAB: Option<String> = ("dfs.datanode.keytab.file", "",
        "The keytab with the key of the node's principal.");
    NAMENODE_PRINCIPAL: Option<String> = ("dfs.namenode.kerberos.principal", "",
        "The NameNode's principal; `_HOST` stands for the name of its address.")
        .aliases(&["dfs.namenode.user.name.key"]);
    NAMENODE_PRINCIPAL_PATTERN: Option<String> = ("dfs.namenode.kerberos.principal.pattern", "",
        "A pattern with * and ? that the NameNode's principal has to be like, instead of \
         dfs.namenode.kerberos.principal. Without a realm in it, krb5.conf's default one counts.");
    IGNORE_SECURE_PORTS: bool = ("ignore.secure.ports.for.testing", "false",
        "With Kerberos, whether the node may use ports that any user could have taken. For \
         clusters that hold nothing of worth.");
}
