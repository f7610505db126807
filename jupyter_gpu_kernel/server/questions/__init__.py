"""What the user is asked in a page.

prompts: the questions that wait; sign_in_requests: kernels of other front ends that wait until their user signs in, and
the sign-in.
"""
