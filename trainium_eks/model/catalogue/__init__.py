"""Facts of AWS, EKS and the charts: instance types, prices, regions, versions, images and add-ons."""
