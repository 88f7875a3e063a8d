"""Is a review good or bad? BERT-base fine-tuned on Amazon Polarity, on a cluster or in a SageMaker training job."""
