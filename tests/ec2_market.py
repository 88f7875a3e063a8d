"""A simulated market of EC2: offers by region, purchases, extensions; botocore validates all requests and answers."""

from datetime import UTC, datetime, timedelta

from aws_double import AwsDouble, AwsError

NOW = datetime(2027, 1, 4, 9, 0, tzinfo=UTC)
HOURLY = {"us-west-2": 8 * 20.0, "us-east-1": 8 * 18.0}
"""Price of a block of 8 nodes for an hour."""


class Market(AwsDouble):
    """One account. Offers of 1 to 14 days begin each day at 11:30 in `zone`; `refused` are answers by operation, or by
    region and operation."""

    def __init__(self, regions=("us-west-2",), sold=lambda _: True):
        super().__init__({})
        self.regions, self.sold = regions, sold
        self.refused, self.reservations, self.extensions = {}, [], []
        self.factor, self.shift, self.only = 1.0, 0, ()
        for name in dir(self):
            if name.startswith(("describe_", "get_", "purchase_")):
                operation = name.title().replace("_", "")
                self.answers[f"ec2:{operation}"] = self._handler(operation, getattr(self, name))

    def _keep(self, params, context, **_):
        context["asked"] = {**params, "region": context["client_region"]}

    def _handler(self, name, answer):
        def handle(asked):
            found = self.refused.get(name) or self.refused.get((asked["region"], name))
            if callable(found):
                found = found(asked)
            return found or answer(asked)

        return handle

    def count(self, name, dry_run=None):
        """How often an operation was asked."""
        return sum(each == f"ec2:{name}" and asked.get("DryRun") in (dry_run, None) for each, asked in self.asked)

    def describe_capacity_block_offerings(self, asked):
        found = []
        hours, start = asked["CapacityDurationHours"], asked["StartDateRange"].replace(hour=11, minute=30)
        nodes = asked.get("InstanceCount") or 4 * asked["UltraserverCount"]
        usd = HOURLY.get(asked["region"], 200.0) * nodes / 8 * hours * self.factor
        while asked["region"] in self.regions and self.sold(asked) and len(found) < 6:
            ends = start + timedelta(hours=hours)
            if ends > asked["EndDateRange"]:
                break
            if start >= asked["StartDateRange"] and (not self.only or f"{start:%m%d}-{hours}" in self.only):
                offer = {"StartDate": start, "EndDate": ends, "UpfrontFee": f"{usd:.4f}", "CurrencyCode": "USD"}
                offer |= {"CapacityBlockOfferingId": f"cb-{start:%m%d}-{hours}-{self.shift}", "InstanceCount": nodes}
                found.append({**offer, "AvailabilityZone": f"{asked['region']}d"})
            start += timedelta(days=1)
        at = int(asked.get("NextToken", 0))
        rest = {"NextToken": str(at + 2)} if at + 2 < len(found) else {}
        return {"CapacityBlockOfferings": found[at : at + 2], **rest}

    def describe_availability_zones(self, asked):
        ids = {"us-west-2": "usw2-az4", "us-east-1": "use1-az6"}
        zone = {"ZoneName": f"{asked['region']}d", "ZoneId": ids.get(asked["region"], "new1-az1")}
        return {"AvailabilityZones": [zone]}

    def get_spot_placement_scores(self, asked):
        scores = [{"Region": "us-west-2", "AvailabilityZoneId": "usw2-az4", "Score": 3}]
        return {"SpotPlacementScores": scores if "us-west-2" in asked["RegionNames"] else []}

    def purchase_capacity_block(self, asked):
        if asked["DryRun"]:
            return AwsError("DryRunOperation", "it would have succeeded")
        _, day, hours, _ = asked["CapacityBlockOfferingId"].split("-")
        start = datetime.strptime(f"{NOW:%Y}{day}1130Z", "%Y%m%d%H%M%z")
        made = {"CapacityReservationId": f"cr-{len(self.reservations) + 1:017x}", "State": "payment-pending"}
        made |= {"StartDate": start, "EndDate": start + timedelta(hours=int(hours)), "AvailabilityZoneId": "usw2-az4"}
        made |= {"TotalInstanceCount": 8, "Tags": asked["TagSpecifications"][0]["Tags"]}
        self.reservations.append(made)
        return {"CapacityReservation": made}

    def describe_capacity_reservations(self, asked):
        ids = asked.get("CapacityReservationIds")
        found = [each for each in self.reservations if not ids or each["CapacityReservationId"] in ids]
        if ids and not found:
            return AwsError("InvalidCapacityReservationId.NotFound")
        return {"CapacityReservations": found}

    def _longer(self, asked, hours):
        """The times of an extension."""
        ids = {each["CapacityReservationId"]: each["EndDate"] for each in self.reservations}
        starts = ids[asked["CapacityReservationId"]]
        times = {"CapacityBlockExtensionStartDate": starts}
        return {**times, "CapacityBlockExtensionEndDate": starts + timedelta(hours=int(hours))}

    def describe_capacity_block_extension_offerings(self, asked):
        hours = asked["CapacityBlockExtensionDurationHours"]
        offer = {"CapacityBlockExtensionOfferingId": f"cbe-{hours}", "UpfrontFee": f"{160 * hours * self.factor:.4f}"}
        offer |= {"InstanceCount": 8, "AvailabilityZoneId": "usw2-az4", **self._longer(asked, hours)}
        return {"CapacityBlockExtensionOfferings": [offer] if self.sold(asked) else []}

    def purchase_capacity_block_extension(self, asked):
        if asked["DryRun"]:
            return AwsError("DryRunOperation")
        times = self._longer(asked, asked["CapacityBlockExtensionOfferingId"].split("-")[1])
        made = {"CapacityReservationId": asked["CapacityReservationId"], **times}
        self.extensions.append({**made, "CapacityBlockExtensionStatus": "payment-pending"})
        return {"CapacityBlockExtensions": self.extensions[-1:]}

    def describe_capacity_block_extension_history(self, asked):
        ids = asked["CapacityReservationIds"]
        return {"CapacityBlockExtensions": [each for each in self.extensions if each["CapacityReservationId"] in ids]}
