package io.hayloft.pfs.contract;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractMultipartUploaderTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Hadoop's contract of MultipartUploader, on pfs. */
public class MultipartUploaderContractTest extends AbstractContractMultipartUploaderTest {
  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new PfsContract(conf);
  }

  @Override
  protected boolean supportsConcurrentUploadsToSamePath() {
    return true;
  }

  /** The last upload to complete replaces the one before. */
  @Override
  protected boolean finalizeConsumesUploadIdImmediately() {
    return true;
  }

  /** Small, but more than the buffers of a stream that gets none of the pool. */
  @Override
  protected int partSizeInBytes() {
    return 100_000;
  }
}
