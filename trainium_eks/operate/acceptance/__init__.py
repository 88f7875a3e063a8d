"""Acceptance of an environment: steps that show its promises one by one, below a limit of cost and time"""
