package org.apache.hadoop.hdfs.server.balancer;

import java.net.URI;
import java.util.Collection;
import org.apache.hadoop.conf.Configuration;

/** Runs the stock Balancer in this process; its entry point is closed to other packages. */
public final class RunBalancer {
  private RunBalancer() {}

  /** Returns the Balancer's exit code. */
  public static int run(Collection<URI> nameNodes, Configuration conf) throws Exception {
    return Balancer.run(nameNodes, BalancerParameters.DEFAULT, conf);
  }
}
